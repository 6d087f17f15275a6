"""What everybody may ask: whether the server lives, what it is, what it can do."""

from importlib.metadata import version
from typing import Any

import msgspec

from perdure.errors import StoreUnavailable
from perdure.http.calls import Call
from perdure.http.docs_page import PAGE_POLICY, page
from perdure.http.openapi import document
from perdure.http.table import NoQuery, Reply, RouteRows, Scope

ROWS = RouteRows()
OPEN: dict[str, Any] = {"has_namespace": False}


class ServerHealth(msgspec.Struct, frozen=True):
    """`ok` while it is so."""

    status: str


class Version(msgspec.Struct, frozen=True):
    """What this server is."""

    name: str
    version: str


@ROWS.add("GET", "/health", Scope.OPEN, answer=ServerHealth, **OPEN)
async def health(_: Call[NoQuery, None]) -> ServerHealth:
    """Whether the process answers at all."""
    return ServerHealth("ok")


@ROWS.add("GET", "/ready", Scope.OPEN, answer=ServerHealth, errors=(StoreUnavailable,), **OPEN)
async def ready(call: Call[NoQuery, None]) -> Reply:
    """Whether requests should be sent here: 503 while the server stops, or cannot read its database."""
    if call.service.stopping.is_set:
        return Reply(ServerHealth("stopping"), 503)
    await call.engine.reader.held_counts("main")
    return Reply(ServerHealth("ok"))


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
