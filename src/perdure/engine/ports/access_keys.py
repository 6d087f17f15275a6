"""The keys that callers of a server show: made, listed, revoked, checked."""

from typing import Protocol

import msgspec

from perdure.stores.records import AccessKeyRow


class KeyRequest(msgspec.Struct, frozen=True):
    """A key to be made; no namespaces and no queues mean every one."""

    label: str
    scopes: tuple[str, ...]
    namespaces: tuple[str, ...] = ()
    queues: tuple[str, ...] = ()
    entity_id: str | None = None
    expires_in_ms: int | None = None


class MadeKey(msgspec.Struct, frozen=True):
    """A key that was made; `key` is shown this once."""

    key_id: str
    key: str


class AccessKeys(Protocol):
    """The keys of a database."""

    async def create(self, request: KeyRequest) -> MadeKey:
        """Make a key; it is good when this returns."""

    async def all(self) -> list[AccessKeyRow]:
        """All keys, those that are revoked as well, the oldest first."""

    async def revoke(self, key_id: str) -> None:
        """End a key; KeyNotFound, or LastAdminKey when nobody could make another one then."""

    async def good(self, key_id: str) -> AccessKeyRow | None:
        """The key with this id; None when there is none, it has expired, or was revoked more than a second ago."""

    async def session_secret(self) -> bytes:
        """What sessions are signed with: the same for every process on the database, and nothing else's."""

    async def check(self, text: str) -> AccessKeyRow | None:
        """The key that a caller shows; None when it is none, has expired, or was revoked more than a second ago."""
