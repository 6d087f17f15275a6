"""What only the owner of a run may ask for: advance, release, children, notes."""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from perdure.engine.ports.owned_run import Advance, OwnedRun, Release, StartRequest
from perdure.kernel.attributes import AttributeChange
from perdure.kernel.commands import Command
from perdure.kernel.events import ChildFailed
from perdure.kernel.messages import Message
from perdure.kernel.requests import RequestAnswer
from perdure.kernel.run import Refusal
from perdure.stores.records import AttemptRow, CallProgress, RunRow


class Owner(Protocol):
    """What only the owner of a run may ask for; of a run that is lost, nothing comes of it."""

    def advance(self, owned: OwnedRun, command: Command) -> Advance | Refusal:
        """Let the rules decide; the event is in the next batch."""

    def continue_run(self, owned: OwnedRun, request: StartRequest) -> Advance | Refusal:
        """Close a run, and start the one that goes on in its place."""

    def start_child(self, owned: OwnedRun, request: StartRequest, then: Callable[[RunRow | None], None]) -> None:
        """Start a child of an owned run; `then` gets the run that has its id, if another one does."""

    def cancel_child(self, owned: OwnedRun, place: str, reason: str) -> None:
        """Ask the child that an owned run started at this place to stop; one that has ended does not mind."""

    def close_unbegun(self, owned: OwnedRun, place: str, failed: ChildFailed) -> None:
        """End the child at this place with a failure, unless some worker has begun it."""

    def set_aside(self, owned: OwnedRun, *numbers: int) -> None:
        """Messages that the code of an owned run does not take are not to be offered again."""

    def answer(self, owned: OwnedRun, answers: Mapping[str, RequestAnswer], *refused: Message) -> None:
        """Answer requests, by the ids of their messages; what the code cannot take is not to be offered again."""

    def annotate(self, owned: OwnedRun, step: str | None, change: AttributeChange | None) -> None:
        """Show what a workflow says of itself; without a change its attributes are as before."""

    def note_undo(self, owned: OwnedRun, undo: str | None) -> None:
        """Show what a run would have to undo, and what it has undone."""

    def record_attempt(self, owned: OwnedRun, attempt: AttemptRow, then: Callable[[], None]) -> None:
        """Write down a failed attempt, then go on."""

    def begin_attempt(self, owned: OwnedRun, place: str, then: Callable[[], None]) -> None:
        """Write down that the only attempt of a call begins, then begin it."""

    def record_beats(
        self, owned: OwnedRun, said: Sequence[CallProgress], then: Callable[[], None] = lambda: None
    ) -> None:
        """Write down the newest details of activities under way, then go on."""

    def note_waiting(self, owned: OwnedRun, waiting: str, then: Callable[[], None] = lambda: None) -> None:
        """Show what a live run waits for, then go on."""

    def note_losses(self, owned: OwnedRun, losses: int, outlived: int) -> None:
        """Put down what is held against a run from now on."""

    def release(self, owned: OwnedRun, how: Release, done: Callable[[bool], None]) -> None:
        """Let go of a run; `done(False)` when a message came first and it must go on."""
