"""Namespaces: made, listed, looked into and deleted."""

from typing import Any

import msgspec

from perdure.errors import NamespaceExists, NamespaceNotEmpty, NamespaceNotFound, NotAllowed
from perdure.http.calls import Call
from perdure.http.table import NoQuery, RouteRows, Scope
from perdure.ids import checked_id
from perdure.views.namespaces import NamespaceDetail, NamespaceInfo, content_view, namespace_view

ROWS = RouteRows()
CREATED = 201
ALL: dict[str, Any] = {"has_namespace": False}


class NamespaceBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A namespace to be made."""

    name: str


class NamespacePage(msgspec.Struct, frozen=True):
    """The namespaces that the caller may see."""

    items: list[NamespaceInfo]


@ROWS.add("GET", "/v1/namespaces", Scope.READ, answer=NamespacePage, **ALL)
async def list_namespaces(call: Call[NoQuery, None]) -> NamespacePage:
    """The namespaces of this database, by name; a key of some sees those alone."""
    own = call.caller.namespaces
    rows = await call.engine.namespaces.all()
    return NamespacePage([namespace_view(row) for row in rows if not own or row.name in own])


@ROWS.add(
    "POST",
    "/v1/namespaces",
    Scope.ADMIN,
    body=NamespaceBody,
    answer=NamespaceInfo,
    status=CREATED,
    errors=(NamespaceExists,),
    **ALL,
)
async def create_namespace(call: Call[NoQuery, NamespaceBody]) -> NamespaceInfo:
    """Make a namespace."""
    if call.caller.namespaces or call.caller.entity_id is not None:
        raise NotAllowed(f"the key {call.caller.label!r} is not one of all namespaces", "use one that is")
    return namespace_view(await call.engine.namespaces.create(checked_id("namespace", call.body.name)))


@ROWS.add("GET", "/v1/namespaces/{name}", Scope.READ, answer=NamespaceDetail, errors=(NamespaceNotFound,), **ALL)
async def get_namespace(call: Call[NoQuery, None]) -> NamespaceDetail:
    """What is in a namespace: runs by status, queues, workers."""
    return content_view(await call.engine.namespaces.look(_own(call)))


@ROWS.add(
    "DELETE",
    "/v1/namespaces/{name}",
    Scope.ADMIN,
    answer=msgspec.Struct,
    errors=(NamespaceNotFound, NamespaceNotEmpty),
    **ALL,
)
async def delete_namespace(call: Call[NoQuery, None]) -> dict[str, bool]:
    """Delete a namespace that nothing is left in."""
    await call.engine.namespaces.delete(_own(call))
    return {"deleted": True}


def _own(call: Call[Any, Any]) -> str:
    """The namespace that the path names; NotAllowed when the key is not one of it."""
    name, own = checked_id("namespace", call.path["name"]), call.caller.namespaces
    if (own and name not in own) or call.caller.entity_id is not None:
        raise NotAllowed(f"the key {call.caller.label!r} is not one of the namespace {name!r}", "name one of its own")
    return name
