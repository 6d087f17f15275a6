"""What the code of an activity can ask for: which attempt this is, the resources of its worker, and a sign of life."""

from collections.abc import Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from perdure.errors import NotInActivity, ResourceNotFound

T = TypeVar("T")

# Whose connections a transactional activity may be given.
DRIVERS = ("sqlite3", "asyncpg", "psycopg")
_NO_TRANSACTION = (
    "decorate the activity with @activity(transaction=True) for a connection to the engine's own database, or give one "
    "as Perdure(url, resources=[...])"
)

# What stands for the details that were given before.
SAME_DETAILS = object()


class AttemptSource(Protocol):
    """Who knows of the attempt that is running."""

    def attempt(self) -> "Attempt": ...

    def heartbeat(self, details: object) -> None: ...

    def publish(self, name: str, body: str) -> None: ...

    @property
    def is_cancelled(self) -> bool: ...

    @property
    def resources(self) -> Sequence[object]: ...

    def instead_of_connection(self) -> str | None:
        """What to ask for when a connection was asked for that is not there, if the attempt is in a transaction."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """An attempt of an activity; `key` is the same for all attempts of one call, an idempotency key for services.

    `details` are the newest that earlier attempts of the call gave to heartbeat(), None when they gave none.
    """

    activity: str
    key: str
    number: int
    workflow_id: str
    run_id: str
    workflow: str
    details: object = None
    _source: AttemptSource | None = field(default=None, repr=False, compare=False)

    @property
    def is_cancelled(self) -> bool:
        """Whether nobody waits for the attempt any more: look at it now and then in a thread, and return."""
        return self._source is not None and self._source.is_cancelled

    def __reduce__(self) -> tuple[object, ...]:
        """As it stands; in another process nobody can tell when it is cancelled."""
        known = (self.activity, self.key, self.number, self.workflow_id, self.run_id, self.workflow, self.details)
        return Attempt, known


running: ContextVar[AttemptSource | None] = ContextVar("perdure_attempt", default=None)


def attempt() -> Attempt:
    """The attempt this activity code runs in."""
    source = running.get()
    if source is None:
        raise NotInActivity("attempt()")
    return source.attempt()


def heartbeat(details: object = SAME_DETAILS) -> None:
    """Say that this activity is alive and, with `details`, how far it is; the next attempt finds them.

    A plain call, from tasks and threads, and cheap: details are written about once a second. It raises
    asyncio.CancelledError when nobody waits for the activity any more.
    """
    source = running.get()
    if source is None:
        raise NotInActivity("heartbeat()", "elsewhere nobody waits for it, leave it out")
    source.heartbeat(details)


def resource(kind: type[T]) -> T:
    """The worker's resource of this type: what was given as `Perdure(url, resources=[...])`.

    In a transactional activity also the connection that its transaction is on.
    """
    source = running.get()
    if source is None:
        raise NotInActivity("resource()")
    for found in source.resources:
        if isinstance(found, kind):
            return found
    there = tuple(type(found).__name__ for found in source.resources)
    package = kind.__module__.partition(".")[0]
    if not kind.__name__.endswith("Connection") or package not in DRIVERS:
        raise ResourceNotFound(kind.__name__, there)
    instead = source.instead_of_connection()
    raise ResourceNotFound(f"{package}.{kind.__name__}", there, instead or _NO_TRANSACTION)
