"""What the code of an activity can ask for: which attempt this is, and the resources of its worker."""

from collections.abc import Sequence
from contextvars import ContextVar
from typing import Protocol, TypeVar

import msgspec

from perdure.errors import NotInActivity, ResourceNotFound

T = TypeVar("T")


class Attempt(msgspec.Struct, frozen=True):
    """An attempt of an activity; `key` is the same for all attempts of one call, an idempotency key for services."""

    activity: str
    key: str
    number: int
    workflow_id: str
    run_id: str
    workflow: str


class AttemptSource(Protocol):
    """Who knows of the attempt that is running."""

    def attempt(self) -> Attempt: ...

    @property
    def resources(self) -> Sequence[object]: ...


running: ContextVar[AttemptSource | None] = ContextVar("perdure_attempt", default=None)


def attempt() -> Attempt:
    """The attempt this activity code runs in."""
    source = running.get()
    if source is None:
        raise NotInActivity("attempt()")
    return source.attempt()


def resource(kind: type[T]) -> T:
    """The worker's resource of this type: what was given as `Perdure(url, resources=[...])`."""
    source = running.get()
    if source is None:
        raise NotInActivity("resource()")
    for found in source.resources:
        if isinstance(found, kind):
            return found
    raise ResourceNotFound(kind.__name__, tuple(type(found).__name__ for found in source.resources))
