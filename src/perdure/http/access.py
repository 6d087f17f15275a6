"""Access: who calls, and what that caller may do.

In:   a caller, found by a key, a token or the program that mounted us.
Out:  nothing, or NotAllowed; which namespace is meant.
"""

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Protocol, TypeAlias

import msgspec

from perdure.engine.ports import KeyRequest
from perdure.errors import BadOption, NotAllowed
from perdure.http.table import Scope
from perdure.ids import checked_id

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
    # When a token ends, in milliseconds; streams that were begun with it end then.
    expires_at: int | None = None


# The server of a developer's own machine, which asks for no key.
ANYBODY = Caller("anybody", ALL_SCOPES)

AsgiScope: TypeAlias = MutableMapping[str, Any]
# Says who calls; a plain function, or an `async def`.
Authenticate: TypeAlias = Callable[[MutableMapping[str, object]], Caller | Awaitable[Caller | None] | None]


class AuthenticateBroke(Exception):  # noqa: N818 - errors name the trouble
    """The function that says who calls raised, or gave no Caller; told to the log, not to who called."""


class AsgiApplication(Protocol):
    """What ASGI servers run and frameworks mount."""

    async def __call__(
        self,
        scope: MutableMapping[str, object],
        receive: Callable[[], Awaitable[MutableMapping[str, object]]],
        send: Callable[[MutableMapping[str, object]], Awaitable[None]],
        /,
    ) -> None: ...


def key_request(
    label: str,
    role: str | None,
    scopes: tuple[str, ...],
    namespaces: tuple[str, ...],
    queues: tuple[str, ...],
    entity_id: str | None,
    expires_in_ms: int | None,
) -> KeyRequest:
    """A key that is asked for, by a role or scope by scope; BadOption."""
    if (role is None) == (not scopes):
        raise BadOption(f"a key has a role ({', '.join(ROLES)}) or scopes; give one of them")
    if role is not None and role not in ROLES:
        raise BadOption(f"no role is named {role!r}; there are {', '.join(ROLES)}")
    wanted = ROLES[role] if role is not None else frozenset(scopes)
    if unknown := sorted(set(wanted) - ALL_SCOPES):
        raise BadOption(f"no scope is named {unknown[0]!r}; there are {', '.join(sorted(ALL_SCOPES))}")
    return KeyRequest(
        checked_id("label", label),
        tuple(sorted(wanted)),
        tuple(checked_id("namespace", name) for name in namespaces),
        tuple(checked_id("queue", name) for name in queues),
        None if entity_id is None else checked_id("entity id", entity_id),
        expires_in_ms,
    )


def check_scope(caller: Caller, scope: Scope) -> None:
    """NotAllowed unless the caller may do what the route is for."""
    if scope not in caller.scopes:
        raise NotAllowed(f"the key {caller.label!r} has no right to {scope}", f"use one with the scope {scope}")


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
