"""Access keys: how they are read, made and revoked, whatever the database.

In:   operations on keys; ids of keys.
Out:  questions to the database; rows of keys; Moved when a key is not there, or is the last one of an admin.
"""

import msgspec

from perdure.stores.answers import Answer, Moved
from perdure.stores.operations import InsertAccessKey, RevokeAccessKey
from perdure.stores.records import AccessKeyRow
from perdure.stores.rules.questions import Ask, Query, Steps

ADMIN = "admin"


class AccessKeyReads:
    """What can be read of keys."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask

    async def key(self, key_id: str) -> AccessKeyRow | None:
        """The key with this id."""
        found = await self._ask(lambda: _rows(Query("access_key", {"key_id": key_id})))
        return found[0] if found else None

    async def all(self) -> list[AccessKeyRow]:
        """All keys, those that are revoked as well, the oldest first."""
        return await self._ask(lambda: _rows(Query("access_keys", {})))


def _rows(question: Query) -> Steps[list[AccessKeyRow]]:
    found = yield question
    return [_row(columns) for columns in found.dicts()]


def _row(columns: dict[str, object]) -> AccessKeyRow:
    lists = {name: msgspec.json.decode(str(columns[name])) for name in ("scopes", "namespaces", "queues")}
    return msgspec.convert(columns | lists, AccessKeyRow)


def insert_access_key(key: InsertAccessKey) -> Steps[None]:
    """Let a key be good from now on."""
    lists = {name: msgspec.json.encode(getattr(key, name)).decode() for name in ("scopes", "namespaces", "queues")}
    yield Query("insert_access_key", key._asdict() | lists)


def revoke_access_key(revoke: RevokeAccessKey) -> Steps[Answer | None]:
    """End a key; Moved when that would leave nobody who could make another one."""
    keys = yield from _rows(Query("access_keys", {}))
    good = [key for key in keys if key.revoked_at is None]
    others = [key for key in good if key.key_id != revoke.key_id and is_lasting_admin(key)]
    mine = [key for key in good if key.key_id == revoke.key_id]
    if not mine or (is_lasting_admin(mine[0]) and not others):
        return Moved()
    return None if (yield Query("revoke_access_key", revoke._asdict())).count == 1 else Moved()


def is_lasting_admin(key: AccessKeyRow) -> bool:
    """Whether a key can always make others: one of an admin, for every namespace, that does not expire."""
    return ADMIN in key.scopes and not key.namespaces and key.entity_id is None and key.expires_at is None
