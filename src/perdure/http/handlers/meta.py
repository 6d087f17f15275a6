"""What everybody may ask: whether the server lives, what it is, what it can do."""

import logging
from importlib.metadata import version
from typing import Any

import msgspec

from perdure.errors import StoreUnavailable
from perdure.http.calls import Call
from perdure.http.docs_page import PAGE_POLICY, page
from perdure.http.openapi import document
from perdure.http.problems import RETRY_AFTER
from perdure.http.table import NoQuery, Reply, RouteRows, Scope

ROWS = RouteRows()
OPEN: dict[str, Any] = {"has_namespace": False}
UNREADY = 503

log = logging.getLogger("perdure.http")


class ServerHealth(msgspec.Struct, frozen=True):
    """`ok` while it is so, else why it is not."""

    status: str


class Version(msgspec.Struct, frozen=True):
    """What this server is."""

    name: str
    version: str


@ROWS.add("GET", "/health", Scope.OPEN, answer=ServerHealth, **OPEN)
async def health(_: Call[NoQuery, None]) -> ServerHealth:
    """Whether the process answers at all."""
    return ServerHealth("ok")


@ROWS.add("GET", "/ready", Scope.OPEN, answer=ServerHealth, also=((UNREADY, "not now"),), **OPEN)
async def ready(call: Call[NoQuery, None]) -> Reply:
    """Whether requests should be sent here: 503 while the server stops, or cannot read its database."""
    if call.service.stopping.is_set:
        return _not_ready("stopping")
    try:
        await call.engine.reader.held_counts("main")
    except StoreUnavailable as error:
        # Where the database is, and what is wrong with it, is told to the log alone.
        log.warning("not ready: %s", error, extra={"event": "not_ready"})
        return _not_ready("the database cannot be read")
    return Reply(ServerHealth("ok"))


def _not_ready(why: str) -> Reply:
    return Reply(ServerHealth(why), UNREADY, (("retry-after", RETRY_AFTER[UNREADY]),))


@ROWS.add("GET", "/version", Scope.OPEN, answer=Version, **OPEN)
async def versions(_: Call[NoQuery, None]) -> Version:
    """The version of the server."""
    return Version("perdure", version("perdure"))


@ROWS.add("GET", "/openapi.json", Scope.OPEN, answer=dict[str, Any], **OPEN)
async def openapi(call: Call[NoQuery, None]) -> dict[str, Any]:
    """The routes, in the words of OpenAPI."""
    return document(call.service.routes, str(call.scope.get("root_path") or ""))


@ROWS.add("GET", "/docs", Scope.OPEN, answer=bytes, **OPEN)
async def docs(call: Call[NoQuery, None]) -> Reply:
    """The routes, as a page."""
    headers = (("content-type", "text/html; charset=utf-8"), ("content-security-policy", PAGE_POLICY))
    return Reply(page(call.service.routes), headers=headers)
