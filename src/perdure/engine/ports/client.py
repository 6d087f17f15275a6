"""What people ask for: start, post, cancel, terminate, pause, resume, wait."""

from collections.abc import Callable
from typing import Protocol

from perdure.engine.ports.owned_run import Ending, OwnedRun, StartRequest
from perdure.kernel.messages import DeferredFailure, DeferredResult, RequestSent, Sent
from perdure.kernel.requests import RequestAnswer
from perdure.stores.records import RunRow
from perdure.tokens import Meant


class Client(Protocol):
    """What people ask of runs, owned or not; `id` is the workflow_id that errors name."""

    async def start(self, namespace: str, request: StartRequest) -> RunRow | OwnedRun:
        """Start a run; when its workflow_id is taken, the run that has it."""

    async def start_within(self, namespace: str, request: StartRequest, connection: object) -> RunRow | OwnedRun:
        """The same inside the transaction a connection of the caller's is in: there when that is committed."""

    async def post(
        self,
        namespace: str,
        run_id: str,
        id: str,
        sent: Sent,
        message_id: str | None = None,
        *,
        within: object = None,
        to_heir: bool = False,
        delay_ms: int = 0,
    ) -> None:
        """Send a signal, or resolve a deferred; RunNotFound or RunClosed when no run can ever receive it; InboxFull.

        A signal with a delay is in the inbox at once, and is received when that is over.

        With `to_heir` that is also the retry or the fork of a closed run that has its id by now.

        `within` a connection of the caller's it is sent when the transaction it is in is committed.
        Sent twice under one message_id it counts once. A run that continues as another one gets it there.
        """

    async def ask(self, namespace: str, run_id: str, id: str, sent: RequestSent, message_id: str) -> RequestAnswer:
        """Send a request, and wait for its answer, on disk; the same message_id again gets the same answer."""

    async def resolve_token(
        self, namespace: str, token: str, resolution: Callable[[str], DeferredResult | DeferredFailure], within: object
    ) -> None:
        """Resolve the deferred that a token is for; `resolution` gets its name. BadToken; else as `post`."""

    async def read_token(self, namespace: str, token: str) -> Meant:
        """The run and the deferred that a token is for; BadToken."""

    async def cancel(self, namespace: str, run_id: str, id: str, reason: str | None, deadline_ms: int | None) -> None:
        """Ask a run to stop; after the deadline, 0 being at once, it is closed whatever its code does."""

    async def terminate(self, namespace: str, run_id: str, id: str, reason: str | None) -> None:
        """End a run at once, without clean-up."""

    async def pause(self, namespace: str, run_id: str, id: str, reason: str | None) -> None:
        """Have a run begin nothing more, and hold it once what is under way has ended; again, it changes the reason."""

    async def resume(self, namespace: str, run_id: str, id: str) -> None:
        """Let a held run go on; RunNotHeld or RunClosed for any other."""

    async def set_attributes(self, namespace: str, run_id: str, change: Callable[[str | None], str]) -> None:
        """Let a run have what is made of its attributes, open or closed, or the run that continues it."""

    async def wait(self, namespace: str, run_id: str, owned: OwnedRun | None = None) -> Ending:
        """Until the run has ended; `owned` is its handle, if it was started here."""
