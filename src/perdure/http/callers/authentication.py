"""Authentication: the caller behind a request, by a key of the database.

In:   the headers of a request.
Out:  a Caller, or None; TooManyRequests where one source tries key after key.
"""

import logging

from perdure.clock import Clock
from perdure.engine.ports import AccessKeys
from perdure.errors import TooManyRequests
from perdure.http.access import AsgiScope, Caller
from perdure.http.callers.sessions import BrowserSessions
from perdure.stores.records import AccessKeyRow

log = logging.getLogger("perdure.http")

# So many wrong keys in a minute from one source, then it is told to wait. A right key is never kept waiting.
MOST_WRONG = 10
WINDOW_MS = 60_000
MOST_SOURCES = 10_000


def caller_of(row: AccessKeyRow) -> Caller:
    """The caller that a key stands for."""
    return Caller(row.label, frozenset(row.scopes), row.namespaces, row.entity_id, row.queues, row.key_id)


class KeyAuthentication:
    """Finds callers by the keys of a database, or by sessions that were begun with one."""

    def __init__(self, keys: AccessKeys, clock: Clock) -> None:
        self._keys = keys
        self._clock = clock
        self.sessions = BrowserSessions(keys, clock)
        self._wrong: dict[str, list[int]] = {}
        # By key what it was when it was last read, and the caller that it stands for.
        self._callers: dict[str, tuple[AccessKeyRow, Caller]] = {}

    async def __call__(self, scope: AsgiScope) -> Caller | None:
        text = key_in(scope)
        row = await (self.sessions.caller(scope) if text is None else self.checked(text, scope))
        return None if row is None else self._caller(row)

    def _caller(self, row: AccessKeyRow) -> Caller:
        known = self._callers.get(row.key_id)
        if known is None or known[0] is not row:
            if len(self._callers) >= MOST_SOURCES:
                self._callers.clear()
            known = self._callers[row.key_id] = (row, caller_of(row))
        return known[1]

    async def checked(self, text: str, scope: AsgiScope) -> AccessKeyRow | None:
        """The key that is shown; TooManyRequests where one source shows wrong ones again and again."""
        row = await self._keys.check(text)
        if row is None:
            self.count_wrong(scope)
        return row

    def count_wrong(self, scope: AsgiScope) -> None:
        """One more wrong key from the source of this request; TooManyRequests when there were too many."""
        source = str((scope.get("client") or ("?",))[0])
        now = self._clock.now()
        recent = [at for at in self._wrong.get(source, ()) if at > now - WINDOW_MS]
        if len(self._wrong) >= MOST_SOURCES:
            self._wrong.clear()
        self._wrong[source] = [*recent[-MOST_WRONG - 1 :], now]
        if len(recent) >= MOST_WRONG:
            if len(recent) == MOST_WRONG:
                log.warning("too many wrong keys from %s", source, extra={"event": "wrong_keys", "source": source})
            raise TooManyRequests("too many wrong keys came from your address in the last minute")


def key_in(scope: AsgiScope) -> str | None:
    """The key that a request shows."""
    for name, value in scope["headers"]:
        if name.lower() == b"authorization":
            kind, _, text = value.decode("latin-1").partition(" ")
            return text.strip() if kind.lower() == "bearer" else None
    return None
