"""Routes as data: method, path, who may use it, what goes in, what comes out, what may go wrong.

In:   rows that the files of `handlers/` declare.
Out:  a value per route, from which dispatch, OpenAPI, the documentation and the test of access are made.
Knows nothing of sockets.
"""

from collections.abc import Awaitable, Callable
from enum import StrEnum
from typing import Any, TypeAlias

import msgspec

from perdure.errors import PerdureError


class Scope(StrEnum):
    """What a caller may do; `open` asks for no key."""

    OPEN = "open"
    READ = "read"
    START = "start"
    STEER = "steer"
    WORK = "work"
    ADMIN = "admin"


class NoQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A route that takes no parameters but those of every route."""


class Reply(msgspec.Struct, frozen=True):
    """An answer whose status or headers are not those of its route."""

    value: Any
    status: int | None = None
    headers: tuple[tuple[str, str], ...] = ()


Handler: TypeAlias = Callable[[Any], Awaitable[Any]]


class Route(msgspec.Struct, frozen=True):
    """A row of the table.

    `query` and `body` are structs that refuse unknown fields. `frames` says that the route is also a stream of
    server-sent events. A route of a run has `{id}` in its path; its handler gets the row of that run.
    """

    method: str
    path: str
    scope: Scope
    handler: Handler
    about: str
    answer: Any
    query: type[msgspec.Struct] = NoQuery
    body: type[msgspec.Struct] | None = None
    errors: tuple[type[PerdureError], ...] = ()
    status: int = 200
    # Other statuses of success, with what they mean.
    also: tuple[tuple[int, str], ...] = ()
    frames: Handler | None = None
    has_namespace: bool = True
    # Whether what it answers may be kept under an idempotency key; not when it is shown this once.
    keeps_answer: bool = True

    @property
    def parameters(self) -> tuple[str, ...]:
        """The names in the path."""
        return tuple(part[1:-1] for part in self.path.split("/") if part.startswith("{"))


class RouteRows:
    """The rows that one file of handlers declares."""

    def __init__(self) -> None:
        self.all: list[Route] = []

    def add(self, method: str, path: str, scope: Scope, **rest: Any) -> Callable[[Handler], Handler]:
        """The function below serves this route; the first line of its docstring says what it is for."""

        def declare(handler: Handler) -> Handler:
            about = (handler.__doc__ or "").strip()
            assert about, f"{method} {path} says nothing of what it is for"
            self.all.append(Route(method, path, scope, handler, about, **rest))
            return handler

        return declare


class Tree:
    """Finds routes by the segments of a path, split before they are decoded: an id may hold a slash."""

    def __init__(self, routes: tuple[Route, ...]) -> None:
        self.routes = routes
        self._root = _Node()
        for route in routes:
            node = self._root
            for part in route.path.strip("/").split("/"):
                node = node.below(part)
            assert route.method not in node.routes, f"{route.method} {route.path} is there twice"
            node.routes[route.method] = route

    def find(self, segments: list[str]) -> tuple[dict[str, Route], list[str]] | None:
        """The routes of a path by method, and the values of its parameters; None when there is no such path."""
        return _walk(self._root, segments, 0, [])


class _Node:
    """A segment of paths, and what may follow it."""

    def __init__(self) -> None:
        self.fixed: dict[str, _Node] = {}
        self.any: _Node | None = None
        self.routes: dict[str, Route] = {}

    def below(self, part: str) -> "_Node":
        if part.startswith("{"):
            self.any = self.any or _Node()
            return self.any
        return self.fixed.setdefault(part, _Node())


def _walk(node: _Node, segments: list[str], at: int, values: list[str]) -> tuple[dict[str, Route], list[str]] | None:
    """A fixed segment before one that takes any value, so that `/v1/runs/count` is not the run `count`."""
    if at == len(segments):
        return (node.routes, values) if node.routes else None
    below = node.fixed.get(segments[at])
    found = None if below is None else _walk(below, segments, at + 1, values)
    if found is None and node.any is not None and segments[at]:
        found = _walk(node.any, segments, at + 1, [*values, segments[at]])
    return found
