"""Sessions of browsers: begun with a key, ended by the person."""

from datetime import datetime
from typing import Any

import msgspec

from perdure.errors import NotAuthenticated, TooManyRequests
from perdure.http.callers.sessions import COOKIE, LASTS_MS
from perdure.http.calls import Call
from perdure.http.table import NoQuery, Reply, RouteRows, Scope
from perdure.views.run import moment

ROWS = RouteRows()


class SessionBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The key of the person."""

    key: str


class SessionInfo(msgspec.Struct, frozen=True):
    """What is sent as `Perdure-CSRF` with every change, and until when the session lasts."""

    csrf: str
    label: str
    scopes: tuple[str, ...]
    expires_at: datetime


@ROWS.add(
    "POST",
    "/v1/session",
    Scope.OPEN,
    body=SessionBody,
    answer=SessionInfo,
    errors=(NotAuthenticated, TooManyRequests),
    has_namespace=False,
    keeps_answer=False,
)
async def begin_session(call: Call[NoQuery, SessionBody]) -> Reply:
    """Begin a session of a browser: the answer sets a cookie that stands for the key."""
    authentication = call.service.authentication
    row = None if authentication is None else await authentication.checked(call.body.key, call.scope)
    if authentication is None or row is None:
        raise NotAuthenticated
    session = await authentication.sessions.begin(row.key_id)
    info = SessionInfo(session.csrf, row.label, row.scopes, moment(session.until))
    return Reply(info, headers=(("set-cookie", _cookie(call, session.token, LASTS_MS // 1000)), NOT_KEPT))


@ROWS.add("DELETE", "/v1/session", Scope.OPEN, answer=msgspec.Struct, has_namespace=False, keeps_answer=False)
async def end_session(call: Call[NoQuery, None]) -> Reply:
    """End the session of a browser: its cookie is taken away."""
    return Reply({"ended": True}, headers=(("set-cookie", _cookie(call, "", 0)), NOT_KEPT))


NOT_KEPT = ("cache-control", "no-store")


def _cookie(call: Call[Any, Any], value: str, seconds: int) -> str:
    path = str(call.scope.get("root_path", "")) or "/"
    secure = "; Secure" if call.scope.get("scheme") == "https" else ""
    return f"{COOKIE}={value}; HttpOnly; SameSite=Strict; Path={path}; Max-Age={seconds}{secure}"
