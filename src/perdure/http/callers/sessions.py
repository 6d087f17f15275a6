"""Sessions of browsers: a key is shown once, then a cookie stands for it.

In:   a key; the cookie and the header of a request.
Out:  a cookie that scripts cannot read, and a token that every change by it must carry; the caller behind them.

Both are signed with the secret of the database, and nothing is kept: they are good at every server process, also after
a restart, for twelve hours, and as long as the key is.
"""

import hmac
import secrets
from typing import NamedTuple

from perdure.clock import Clock
from perdure.engine.ports import AccessKeys
from perdure.errors import NotAllowed
from perdure.http.access import AsgiScope
from perdure.stores.records import AccessKeyRow

COOKIE = "perdure_session"
CSRF = "perdure-csrf"
LASTS_MS = 12 * 3600 * 1000
READING = frozenset({"GET", "HEAD", "OPTIONS"})


class BrowserSession(NamedTuple):
    """A session that has begun: its cookie, and what every change by it must carry."""

    token: str
    csrf: str
    until: int


class BrowserSessions:
    """The sessions of a database."""

    def __init__(self, keys: AccessKeys, clock: Clock) -> None:
        self._keys = keys
        self._clock = clock

    async def begin(self, key_id: str) -> BrowserSession:
        """A session of a key that was shown."""
        until = self._clock.now() + LASTS_MS
        told = f"{key_id}.{until}.{secrets.token_hex(8)}"
        secret = await self._keys.session_secret()
        token = f"{told}.{_signed(secret, 'session', told)}"
        return BrowserSession(token, _signed(secret, "csrf", token), until)

    async def caller(self, scope: AsgiScope) -> AccessKeyRow | None:
        """The key behind the cookie of a request; NotAllowed for a change that a page of another site could send."""
        token = cookie_in(scope)
        if token is None:
            return None
        told, _, signature = token.rpartition(".")
        key_id, until, *_ = [*told.split("."), "", ""]
        secret = await self._keys.session_secret()
        if not hmac.compare_digest(signature.encode(), _signed(secret, "session", told).encode()):
            return None
        if not until.isdecimal() or int(until) <= self._clock.now():
            return None
        row = await self._keys.good(key_id)
        # A WebSocket has no method: it is read, and its origin was looked at.
        if row is not None and scope.get("method", "GET") not in READING:
            given = header_in(scope, CSRF) or ""
            if not hmac.compare_digest(given.encode(), _signed(secret, "csrf", token).encode()):
                raise NotAllowed(
                    "a change by the cookie of a session must carry its token",
                    "send the header Perdure-CSRF with what POST /v1/session gave",
                )
        return row


def cookie_in(scope: AsgiScope) -> str | None:
    """The cookie of a session in a request."""
    for part in (header_in(scope, "cookie") or "").split(";"):
        name, _, value = part.strip().partition("=")
        if name == COOKIE:
            return value
    return None


def header_in(scope: AsgiScope, wanted: str) -> str | None:
    """A header of a request."""
    for name, value in scope["headers"]:
        if name.lower() == wanted.encode():
            return str(value.decode("latin-1"))
    return None


def _signed(secret: bytes, what: str, text: str) -> str:
    return hmac.digest(secret, f"{what}\0{text}".encode(), "sha256").hex()
