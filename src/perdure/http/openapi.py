"""OpenAPI 3.1, made from the table of routes: what goes in, what comes out, what may go wrong."""

from collections.abc import Sequence
from http import HTTPStatus
from importlib.metadata import version
from typing import Any

import msgspec

from perdure.http import problems
from perdure.http.calls import COMMON
from perdure.http.table import Route, Scope

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


def document(routes: Sequence[Route]) -> dict[str, Any]:
    """The whole document."""
    types = [route.body for route in routes if route.body is not None] + [_answer_type(route) for route in routes]
    schemas, components = msgspec.json.schema_components(types, schema_hook=_anything, ref_template=REF)
    shapes = dict(zip(map(str, types), schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, shapes)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Perdure", "version": version("perdure"), "description": "Durable workflows over HTTP."},
        "paths": paths,
        "components": {
            "schemas": {**components, "Problem": PROBLEM},
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
    }


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
    found += [{"name": name, "in": "query", "required": False, "schema": each} for name, each in properties.items()]
    common = COMMON if "id" in route.parameters else COMMON[:1]
    if route.has_namespace:
        found += [
            {"name": name, "in": "query", "required": False, "schema": {"type": "string"}}
            for name in common
            if name not in properties
        ]
    return found


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
    expected = {problems.status_of(error) for error in route.errors} | {400, 403, 413, 415, 422, 500, 503}
    expected |= {401} if route.scope is not Scope.OPEN else set()
    problem = {problems.CONTENT_TYPE: {"schema": {"$ref": REF.format(name="Problem")}}}
    for status in sorted(expected - {int(each) for each in found}):
        names = [error.__name__ for error in route.errors if problems.status_of(error) == status]
        found[str(status)] = {"description": ", ".join(names) or HTTPStatus(status).phrase, "content": problem}
    return found
