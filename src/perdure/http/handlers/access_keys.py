"""Keys: made, listed and revoked by admins."""

from datetime import datetime
from typing import Any

import msgspec

from perdure.authoring.options import milliseconds
from perdure.engine.ports import KeyRequest, MadeKey
from perdure.errors import BadField, KeyNotFound, LastAdminKey, NotAllowed
from perdure.http.access import ALL_SCOPES, ROLES
from perdure.http.calls import Call
from perdure.http.table import NoQuery, RouteRows, Scope
from perdure.ids import checked_id
from perdure.stores.records import AccessKeyRow
from perdure.views.run import moment

ROWS = RouteRows()
CREATED = 201


class KeyBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A key to be made: by role, or scope by scope; `expires` in seconds."""

    label: str
    role: str | None = None
    scopes: tuple[str, ...] = ()
    namespaces: tuple[str, ...] = ()
    queues: tuple[str, ...] = ()
    entity_id: str | None = None
    expires: float | None = None


class KeyInfo(msgspec.Struct, frozen=True):
    """A key, without the key itself."""

    key_id: str
    label: str
    scopes: tuple[str, ...]
    namespaces: tuple[str, ...]
    queues: tuple[str, ...]
    entity_id: str | None
    created_at: datetime
    expires_at: datetime | None
    last_used_at: datetime | None
    revoked_at: datetime | None


class Keys(msgspec.Struct, frozen=True):
    items: list[KeyInfo]


def key_request(body: KeyBody) -> KeyRequest:
    """The key that is asked for, checked."""
    if (body.role is None) == (not body.scopes):
        raise BadField("the body", f"give a role ({', '.join(ROLES)}) or scopes, one of them")
    if body.role is not None and body.role not in ROLES:
        raise BadField("the body", f"no role is named {body.role!r}; there are {', '.join(ROLES)}")
    scopes = ROLES[body.role] if body.role is not None else frozenset(body.scopes)
    unknown = sorted(set(scopes) - ALL_SCOPES)
    if unknown:
        raise BadField("the body", f"no scope is named {unknown[0]!r}; there are {', '.join(sorted(ALL_SCOPES))}")
    return KeyRequest(
        checked_id("label", body.label),
        tuple(sorted(scopes)),
        tuple(checked_id("namespace", name) for name in body.namespaces),
        tuple(checked_id("queue", name) for name in body.queues),
        None if body.entity_id is None else checked_id("entity id", body.entity_id),
        None if body.expires is None else milliseconds(body.expires, "expires", least=1),
    )


@ROWS.add("POST", "/v1/keys", Scope.ADMIN, body=KeyBody, answer=MadeKey, status=CREATED, has_namespace=False)
async def create_key(call: Call[NoQuery, KeyBody]) -> MadeKey:
    """Make a key; it is shown this once."""
    request, caller = key_request(call.body), call.caller
    if caller.namespaces and not set(request.namespaces or ("",)) <= set(caller.namespaces):
        raise NotAllowed(f"the key {caller.label!r} makes keys of its own namespaces alone", "name them")
    if caller.entity_id not in {None, request.entity_id}:
        raise NotAllowed(f"the key {caller.label!r} makes keys of its own entity alone", "name it")
    return await call.engine.access_keys.create(request)


@ROWS.add("GET", "/v1/keys", Scope.ADMIN, answer=Keys, has_namespace=False)
async def list_keys(call: Call[NoQuery, None]) -> Keys:
    """All keys, those that are revoked as well, the oldest first."""
    found = await call.engine.access_keys.all()
    return Keys([info_of(row) for row in found if _is_own(call, row)])


@ROWS.add(
    "DELETE",
    "/v1/keys/{key_id}",
    Scope.ADMIN,
    answer=msgspec.Struct,
    errors=(KeyNotFound, LastAdminKey),
    has_namespace=False,
)
async def revoke_key(call: Call[NoQuery, None]) -> dict[str, bool]:
    """End a key: within a second it is refused everywhere. The last one of an admin stays."""
    key_id = call.path["key_id"]
    if not any(row.key_id == key_id and _is_own(call, row) for row in await call.engine.access_keys.all()):
        raise KeyNotFound(key_id)
    await call.engine.access_keys.revoke(key_id)
    return {"revoked": True}


def _is_own(call: Call[Any, Any], row: AccessKeyRow) -> bool:
    """Whether a key is one of the namespaces of the caller, and of its entity."""
    own, entity_id = call.caller.namespaces, call.caller.entity_id
    is_within = not own or (bool(row.namespaces) and set(row.namespaces) <= set(own))
    return is_within and entity_id in {None, row.entity_id}


def info_of(row: AccessKeyRow) -> KeyInfo:
    """A key as people see it."""
    times = (row.expires_at, row.last_used_at, row.revoked_at)
    expires_at, last_used_at, revoked_at = (None if at is None else moment(at) for at in times)
    rights = (row.scopes, row.namespaces, row.queues, row.entity_id)
    return KeyInfo(row.key_id, row.label, *rights, moment(row.created_at), expires_at, last_used_at, revoked_at)
