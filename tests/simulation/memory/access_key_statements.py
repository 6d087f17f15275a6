"""What the statements on access keys do to tables in memory."""

from typing import Any

from perdure.stores.rules.questions import Found
from tests.simulation.memory.statements import changed, never_waiting, statement
from tests.simulation.memory.view import Steps, View

COLUMNS = ["key_id", "hash", "label", "scopes", "namespaces", "queues", "entity_id", "created_at", "expires_at"]
COLUMNS += ["last_used_at", "revoked_at"]


@statement
def insert_access_key(view: View, **key: Any) -> Steps[Found]:
    yield from view.access_keys.wait(key["key_id"])
    view.access_keys.put(key["key_id"], key | {"last_used_at": None, "revoked_at": None})
    return changed(1)


@statement
def revoke_access_key(view: View, key_id: str, at: int) -> Steps[Found]:
    yield from view.access_keys.wait(key_id)
    row = view.access_keys.get(key_id)
    if row is None or row["revoked_at"] is not None:
        return changed(0)
    view.access_keys.put(key_id, row | {"revoked_at": at})
    return changed(1)


@statement
def note_key_use(view: View, key_id: str, at: int) -> Steps[Found]:
    yield from view.access_keys.wait(key_id)
    row: Any = view.access_keys.get(key_id)
    if row is None or (row["last_used_at"] or 0) >= at:
        return changed(0)
    view.access_keys.put(key_id, row | {"last_used_at": at})
    return changed(1)


@never_waiting
def access_key(view: View, key_id: str) -> Found:
    return _found([row for row in _rows(view) if row["key_id"] == key_id])


@never_waiting
def access_keys(view: View) -> Found:
    return _found(sorted(_rows(view), key=lambda row: (row["created_at"], row["key_id"])))


def _rows(view: View) -> list[dict[str, Any]]:
    keys = {*view.tables.access_keys.rows, *view.access_keys.own}
    return [row for key in keys if (row := view.access_keys.get(key)) is not None]


def _found(rows: list[dict[str, Any]]) -> Found:
    return Found(COLUMNS, [tuple(row[name] for name in COLUMNS) for row in rows], len(rows))
