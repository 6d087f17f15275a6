"""Keys of callers, as people see them."""

from dataclasses import dataclass
from datetime import datetime

from perdure.stores.records import AccessKeyRow
from perdure.views.run import View, moment


@dataclass(frozen=True, slots=True)
class KeyInfo(View):
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


def key_view(row: AccessKeyRow) -> KeyInfo:
    """A key as people see it."""
    times = (row.expires_at, row.last_used_at, row.revoked_at)
    expires_at, last_used_at, revoked_at = (None if at is None else moment(at) for at in times)
    rights = (row.scopes, row.namespaces, row.queues, row.entity_id)
    return KeyInfo(row.key_id, row.label, *rights, moment(row.created_at), expires_at, last_used_at, revoked_at)
