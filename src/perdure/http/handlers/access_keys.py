"""Keys: made, listed and revoked by admins."""

from typing import Any

import msgspec

from perdure.authoring.options import milliseconds
from perdure.engine.ports import MadeKey
from perdure.errors import BadOption, KeyAlreadyMade, KeyNotFound, LastAdminKey, NotAllowed
from perdure.http.access import key_request
from perdure.http.calls import Call
from perdure.http.table import NoQuery, RouteRows, Scope
from perdure.stores.records import AccessKeyRow
from perdure.views.access_keys import KeyInfo, key_view

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


class KeyPage(msgspec.Struct, frozen=True):
    items: list[KeyInfo]


@ROWS.add(
    "POST",
    "/v1/keys",
    Scope.ADMIN,
    body=KeyBody,
    answer=MadeKey,
    status=CREATED,
    errors=(BadOption, KeyAlreadyMade),
    has_namespace=False,
    keeps_answer=False,
)
async def create_key(call: Call[NoQuery, KeyBody]) -> MadeKey:
    """Make a key; it is shown this once, and not again under an idempotency key."""
    body, caller = call.body, call.caller
    expires_in_ms = None if body.expires is None else milliseconds(body.expires, "expires", least=1)
    rights = (body.role, body.scopes, body.namespaces, body.queues, body.entity_id)
    request = key_request(body.label, *rights, expires_in_ms)
    if caller.namespaces and not set(request.namespaces or ("",)) <= set(caller.namespaces):
        raise NotAllowed(f"the key {caller.label!r} makes keys of its own namespaces alone", "name them")
    if caller.queues and not set(request.queues or ("",)) <= set(caller.queues):
        raise NotAllowed(f"the key {caller.label!r} makes keys of its own queues alone", "name them")
    if caller.entity_id not in {None, request.entity_id}:
        raise NotAllowed(f"the key {caller.label!r} makes keys of its own entity alone", "name it")
    return await call.engine.access_keys.create(request)


@ROWS.add("GET", "/v1/keys", Scope.ADMIN, answer=KeyPage, has_namespace=False)
async def list_keys(call: Call[NoQuery, None]) -> KeyPage:
    """All keys, those that are revoked as well, the oldest first."""
    found = await call.engine.access_keys.all()
    return KeyPage([key_view(row) for row in found if _is_own(call, row)])


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
