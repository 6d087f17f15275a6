"""Code of an activity, run inside a transaction and committed with its outcome."""

from typing import Protocol, TypeAlias

import msgspec

from perdure.engine.ports.owned_run import OwnedRun
from perdure.kernel.commands import RecordOutcome
from perdure.kernel.events import Event
from perdure.stores.answers import Undone


class Written(msgspec.Struct, frozen=True):
    """What the code did and the event are on disk."""

    event: Event


class Unwritten(msgspec.Struct, frozen=True):
    """Nothing of it is on disk, and the database is to blame: the same may be done again."""


class Gone(msgspec.Struct, frozen=True):
    """The run is not this worker's any more, or that is not known: its next owner looks what is on disk."""


Transacted: TypeAlias = Written | Undone | Unwritten | Gone


class ActivityCode(Protocol):
    """The code of an activity, and the command that records what it returned."""

    activity: str
    is_async: bool

    def run(self, connection: object) -> object:
        """Call the function: what it returns, or its coroutine. Any thread may call."""

    def unwanted(self) -> BaseException | None:
        """Why nobody wants it any more; None while it is wanted. Any thread may call."""

    def accept(self, value: object) -> RecordOutcome | None:
        """The command that records what the function returned; None when it is not to be recorded.

        From here on nothing else may happen to the run until it is told what became of the transaction.
        """


class Transactor(Protocol):
    """Runs the code of transactional activities; `is_alone` says that nothing else can be written meanwhile."""

    @property
    def is_alone(self) -> bool: ...

    def connection_type(self, *, is_async: bool) -> str | None:
        """The type of connection that such code gets, as people import it; None when there is none for it."""

    def refusal(self, activity: str, *, is_async: bool) -> str | None:
        """Why such an activity cannot run here; None when it can."""

    async def run(self, owned: OwnedRun, code: ActivityCode) -> Transacted:
        """Run the code inside a transaction, and commit that with the event that records its outcome."""

    async def calm(self) -> None:
        """Until no transaction is being committed; before that its run cannot be let go of."""
