"""Keys of callers over a store: made, listed, revoked, and checked without asking the database each time.

In:   requests of admins; keys as callers show them.
Out:  keys, shown once; rows of those that are good.
"""

import hmac

from perdure.access_keys import id_in, is_same, new_key
from perdure.clock import Clock
from perdure.engine.committer import CallbackGroup, Committer, Unavailable
from perdure.engine.ports.access_keys import KeyRequest, MadeKey
from perdure.engine.ports.owned_run import secret_there
from perdure.errors import KeyNotFound, LastAdminKey, StoreError
from perdure.stores.answers import Applied, Moved
from perdure.stores.operations import InsertAccessKey, NoteKeyUse, Operation, RevokeAccessKey
from perdure.stores.port import Store
from perdure.stores.records import AccessKeyRow

# A key is read again after so long: one that was revoked is refused by then.
KNOWN_MS = 1000
# How often it is written down that a key was used.
USE_MS = 60_000
MOST_KNOWN = 10_000


class StoreAccessKeys:
    """The keys of a database; the AccessKeys of an engine."""

    def __init__(self, store: Store, committer: Committer, clock: Clock) -> None:
        self._store = store
        self._committer = committer
        self._clock = clock
        # By the id of a key what was read, and until when that is believed.
        self._known: dict[str, tuple[int, AccessKeyRow | None]] = {}
        self._secret: bytes | None = None
        self.all = store.reads.access_keys.all

    async def create(self, request: KeyRequest) -> MadeKey:
        """Make a key; it is good when this returns."""
        now, made = self._clock.now(), new_key()
        expires_at = None if request.expires_in_ms is None else now + request.expires_in_ms
        rights = (request.scopes, request.namespaces, request.queues, request.entity_id)
        await self._write(InsertAccessKey(made.key_id, made.hash, request.label, *rights, now, expires_at))
        return MadeKey(made.key_id, made.text)

    async def revoke(self, key_id: str) -> None:
        """End a key; KeyNotFound, or LastAdminKey when nobody could make another one then."""
        if not await self._write(RevokeAccessKey(key_id, self._clock.now())):
            row = await self._store.reads.access_keys.key(key_id)
            if row is None or row.revoked_at is not None:
                raise KeyNotFound(key_id)
            raise LastAdminKey(key_id)
        self._known.pop(key_id, None)

    async def check(self, text: str) -> AccessKeyRow | None:
        """The key that a caller shows; None when it is none, has expired, or was revoked more than a second ago."""
        key_id = id_in(text)
        row = None if key_id is None else await self._row(key_id, text)
        return row if row is not None and is_same(text, row.hash) else None

    async def good(self, key_id: str) -> AccessKeyRow | None:
        """The key with this id, as long as it is good."""
        return await self._row(key_id, None)

    async def _row(self, key_id: str, text: str | None) -> AccessKeyRow | None:
        now = self._clock.now()
        until, row = self._known.get(key_id, (0, None))
        if now >= until:
            row = await self._store.reads.access_keys.key(key_id)
            if len(self._known) >= MOST_KNOWN:
                self._known.clear()
            self._known[key_id] = (now + KNOWN_MS, row)
            is_shown = row is not None and (text is None or is_same(text, row.hash))
            if row is not None and is_shown and now > (row.last_used_at or 0) + USE_MS:
                # Not waited for: a database that cannot be written is no concern of who only reads.
                self._committer.submit(CallbackGroup([NoteKeyUse(key_id, now)], lambda _: None))
        if row is None or row.revoked_at is not None:
            return None
        return None if row.expires_at is not None and row.expires_at <= now else row

    async def session_secret(self) -> bytes:
        """What sessions are signed with, made from the secret of the database."""
        if self._secret is None:
            found = await self._store.reads.channels.secret()
            self._secret = hmac.digest(secret_there(self._store.url, found), b"browser sessions", "sha256")
        return self._secret

    async def _write(self, operation: Operation) -> bool:
        answer = await self._committer.apply(operation)
        if isinstance(answer, Unavailable):
            raise answer.error
        if not isinstance(answer, Applied | Moved):
            raise StoreError(self._store.url, f"the change was refused: {answer}")
        return isinstance(answer, Applied)
