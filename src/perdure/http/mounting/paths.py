"""The path of a request, and the prefix that the application is mounted under.

In:   the ASGI scope that a server, or the framework that mounted the application, hands over.
Out:  the prefix, and the rest of the path as it came, not decoded: an id may hold a slash.

ASGI says that `root_path` is the beginning of `path`. Starlette and FastAPI do it that way; a proxy that takes the
prefix off leaves a `path` that does not begin with it; Litestar takes it off `path` alone and does not tell. `raw_path`
is always what came over the wire, so what is left of `path` is found at its end.
"""

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, unquote


def located(scope: Mapping[str, Any]) -> tuple[str, str]:
    """The prefix of a request, and the rest of its path, encoded."""
    path = str(scope["path"])
    root = str(scope.get("root_path") or "").rstrip("/")
    rest = path[len(root) :] if root and _is_under(path, root) else path
    given = scope.get("raw_path")
    if not given:
        return root, quote(rest)
    raw = given.decode("latin-1").partition("?")[0]
    if not root and ("%" not in raw and raw == path):
        return "", raw
    if root and _is_under(raw, root):
        return root, raw[len(root) :]
    return _split(raw, rest, root)


def _split(raw: str, rest: str, root: str) -> tuple[str, str]:
    """The shortest beginning of a path after which there is what is left of it."""
    wanted = _plain(rest)
    at = 0
    while at >= 0:
        if _plain(unquote(raw[at:])) == wanted:
            return (unquote(raw[:at]) or root), raw[at:]
        at = raw.find("/", at + 1)
    return root, raw


def _is_under(path: str, root: str) -> bool:
    return path.startswith(root) and path[len(root) : len(root) + 1] in {"", "/"}


def _plain(path: str) -> str:
    """Without empty segments, which frameworks take away."""
    return "/".join(part for part in path.split("/") if part)
