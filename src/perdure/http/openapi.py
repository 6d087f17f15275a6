"""OpenAPI 3.1, made from the table of routes: what goes in, what comes out, what may go wrong."""

from collections.abc import Sequence
from http import HTTPStatus
from importlib.metadata import version
from typing import Any

import msgspec

from perdure.http import problems
from perdure.http.calls import common_of
from perdure.http.table import Route, Scope
from perdure.views.run import RunInfo

REF = "#/components/schemas/{name}"
PROBLEM = {
    "type": "object",
    "required": ["type", "title", "status", "detail", "error", "request_id"],
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "error": {"type": "string", "description": "the class of the error in perdure.errors"},
        "request_id": {"type": "string"},
    },
}


def document(routes: Sequence[Route], prefix: str = "") -> dict[str, Any]:
    """The whole document; `prefix` is the path that the routes are mounted under."""
    types = [route.body for route in routes if route.body is not None] + [_answer_type(route) for route in routes]
    schemas, components = msgspec.json.schema_components(types, schema_hook=_anything, ref_template=REF)
    shapes = dict(zip(map(str, types), schemas, strict=True))
    # As `describe()` tells it, plus its id.
    run = components[RunInfo.__name__]
    run["properties"] = {"id": {"type": "string"}, **run["properties"]}
    run["required"] = ["id", *run["required"]]
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, shapes)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Perdure", "version": version("perdure"), "description": "Durable workflows over HTTP."},
        "servers": [{"url": prefix or "/"}],
        "paths": paths,
        "components": {
            "schemas": {**_closed(components), "Problem": PROBLEM},
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
    }


def _closed(schema: Any) -> Any:
    """A schema without `items: false`, which makers of clients cannot read; how many there may be is said anyway."""
    if isinstance(schema, dict):
        return {name: _closed(each) for name, each in schema.items() if not (name == "items" and each is False)}
    return [_closed(each) for each in schema] if isinstance(schema, list) else schema


def _anything(_: type) -> dict[str, Any]:
    """Values of users are whatever JSON can say."""
    return {"description": "any JSON value"}


def _answer_type(route: Route) -> Any:
    return Any if route.answer is bytes or route.answer is msgspec.Struct else route.answer


def _operation(route: Route, shapes: dict[str, Any]) -> dict[str, Any]:
    about, _, more = route.about.partition("\n")
    operation: dict[str, Any] = {
        "operationId": getattr(route.handler, "__name__", route.path),
        "summary": about,
        "description": more.strip() or about,
        "tags": [_noun(route.path)],
        "parameters": parameters_of(route),
        "responses": _responses(route, shapes),
    }
    if route.body is not None:
        content = {"application/json": {"schema": shapes[str(route.body)]}}
        operation["requestBody"] = {"required": True, "content": content}
    if route.scope is not Scope.OPEN:
        operation["security"] = [{"key": []}]
        operation["x-perdure-scope"] = str(route.scope)
    return operation


def _noun(path: str) -> str:
    parts = path.strip("/").split("/")
    return parts[1] if parts[0] == "v1" and len(parts) > 1 else "server"


def parameters_of(route: Route) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
        for name in route.parameters
    ]
    schema = msgspec.json.schema(route.query, schema_hook=_anything)
    properties = schema["$defs"][route.query.__name__].get("properties", {}) if "$defs" in schema else {}
    found += [
        {"name": name, "in": "query", "required": False, **_given(name, each)} for name, each in properties.items()
    ]
    found += [
        {"name": name, "in": "query", "required": False, "schema": {"type": "string"}}
        for name in common_of(route)
        if name not in properties
    ]
    return found


def _given(name: str, schema: dict[str, Any]) -> dict[str, Any]:
    """How a parameter is written: the values of a filter as JSON, all others as they are."""
    return {"content": {"application/json": {"schema": {"type": "object"}}}} if name == "params" else {"schema": schema}


def _responses(route: Route, shapes: dict[str, Any]) -> dict[str, Any]:
    shape = shapes[str(_answer_type(route))]
    content: dict[str, Any] = {"application/json": {"schema": shape}}
    if route.answer is bytes:
        content = {"text/html": {"schema": {"type": "string"}}}
    if route.frames is not None:
        content["text/event-stream"] = {"schema": {"type": "string"}}
    found: dict[str, Any] = {str(route.status): {"description": HTTPStatus(route.status).phrase, "content": content}}
    for status, why in route.also:
        found[str(status)] = {"description": why, "content": content}
    expected = {problems.status_of(error) for error in route.errors} | {400, 403, 413, 415, 422, 429, 431, 500, 503}
    expected |= {401} if route.scope is not Scope.OPEN else set()
    # A namespace that nobody made, or what the path names.
    expected |= {404} if route.has_namespace or route.parameters else set()
    # An idempotency key under which something is under way.
    expected |= {409} if route.method != "GET" else set()
    problem = {problems.CONTENT_TYPE: {"schema": {"$ref": REF.format(name="Problem")}}}
    for status in sorted(expected - {int(each) for each in found}):
        names = [error.__name__ for error in route.errors if problems.status_of(error) == status]
        found[str(status)] = {"description": ", ".join(names) or HTTPStatus(status).phrase, "content": problem}
    return found
