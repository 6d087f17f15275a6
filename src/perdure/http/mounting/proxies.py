"""A server that is reached under a prefix, or behind a proxy that speaks TLS.

In:   an application, the prefix, whether there is a proxy.
Out:  the application, told of both: who calls is the last address that `X-Forwarded-For` names, which the proxy itself
      has written; what stands before it could have been written by anybody.
"""

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from perdure.http.access import AsgiApplication

FORWARDED = b"x-forwarded-for"


class Placed:
    """An application under a prefix, and maybe behind a proxy."""

    def __init__(self, application: AsgiApplication, prefix: str, *, behind_proxy: bool) -> None:
        self._application = application
        self._prefix = prefix
        self._behind_proxy = behind_proxy

    async def __call__(
        self,
        scope: MutableMapping[str, Any],
        receive: Callable[[], Awaitable[MutableMapping[str, Any]]],
        send: Callable[[MutableMapping[str, Any]], Awaitable[None]],
    ) -> None:
        scope["root_path"] = self._prefix
        if self._behind_proxy and scope["type"] != "lifespan":
            scope["scheme"] = {"http": "https", "ws": "wss"}.get(scope["scheme"], scope["scheme"])
            if source := _last_forwarded(scope["headers"]):
                scope["client"] = (source, 0)
        await self._application(scope, receive, send)


def _last_forwarded(headers: list[tuple[bytes, bytes]]) -> str:
    given = [value for name, value in headers if name.lower() == FORWARDED]
    return given[-1].decode("latin-1").rpartition(",")[2].strip() if given else ""
