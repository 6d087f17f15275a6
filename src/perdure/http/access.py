"""Access: who calls, and what that caller may do.

In:   a caller, found by a key, a token or the program that mounted us.
Out:  nothing, or NotAllowed; which namespace is meant.
"""

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Protocol, TypeAlias

import msgspec

from perdure.errors import NotAllowed
from perdure.http.table import Scope

ALL_SCOPES = frozenset(scope for scope in Scope if scope is not Scope.OPEN)
ROLES: dict[str, frozenset[Scope]] = {
    "reader": frozenset({Scope.READ}),
    "operator": frozenset({Scope.READ, Scope.START, Scope.STEER}),
    "worker": frozenset({Scope.WORK}),
    "admin": ALL_SCOPES,
}


class Caller(msgspec.Struct, frozen=True):
    """Who calls. No namespaces means every one; with an `entity_id` only runs of that entity are there."""

    label: str
    scopes: frozenset[str] = frozenset()
    namespaces: tuple[str, ...] = ()
    entity_id: str | None = None
    queues: tuple[str, ...] = ()
    key_id: str | None = None


# The server of a developer's own machine, which asks for no key.
ANYBODY = Caller("anybody", ALL_SCOPES)

AsgiScope: TypeAlias = MutableMapping[str, Any]
# Says who calls; a plain function, or an `async def`.
Authenticate: TypeAlias = Callable[[MutableMapping[str, object]], Caller | Awaitable[Caller | None] | None]


class AsgiApplication(Protocol):
    """What ASGI servers run and frameworks mount."""

    async def __call__(
        self,
        scope: MutableMapping[str, object],
        receive: Callable[[], Awaitable[MutableMapping[str, object]]],
        send: Callable[[MutableMapping[str, object]], Awaitable[None]],
        /,
    ) -> None: ...


def check_scope(caller: Caller, scope: Scope) -> None:
    """NotAllowed unless the caller may do what the route is for."""
    if scope not in caller.scopes:
        raise NotAllowed(f"the key {caller.label!r} has no right to {scope}", f"use one with the scope {scope!r}")


def namespace_for(caller: Caller, wanted: str | None) -> str:
    """The namespace that is meant: the one that is named, the only one of the key, or `main`."""
    if wanted is None:
        return caller.namespaces[0] if len(caller.namespaces) == 1 else _allowed(caller, "main")
    return _allowed(caller, wanted)


def _allowed(caller: Caller, namespace: str) -> str:
    if caller.namespaces and namespace not in caller.namespaces:
        raise NotAllowed(
            f"the key {caller.label!r} is not one of the namespace {namespace!r}", "name one of its own: ?namespace=..."
        )
    return namespace


def anybody(_: AsgiScope) -> Caller:
    """Everybody who reaches the server may do everything: for the own machine alone."""
    return ANYBODY
