"""A Perdure as an ASGI application: mounted in another one, or given to a server by itself.

In:   a Perdure, open or not.
Out:  the routes over it while it is open; 503 before and after. A server that tells of its start opens and closes a
      Perdure that nobody else has opened.
"""

from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import AbstractAsyncContextManager
from typing import Any

from perdure.app.network.serving import application
from perdure.engine.ports import Engine
from perdure.errors import NotOpen
from perdure.http.access import Authenticate
from perdure.http.asgi import Application, refuse
from perdure.http.catalog import Catalog

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


class MountedApplication:
    """The routes over a Perdure; `engine` gives its engine, or NotOpen, and `catalog` its workflows."""

    def __init__(
        self,
        app: AbstractAsyncContextManager[object],
        engine: Callable[[], Engine],
        catalog: Callable[[], Catalog],
        authenticate: Authenticate | None,
    ) -> None:
        self._app = app
        self._engine = engine
        self._catalog = catalog
        self._authenticate = authenticate
        self._made: tuple[Engine, Application] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._live(receive, send)
            return
        found = self._application()
        if found is None:
            # Not with the URL of the database, which is none of the caller's business.
            await refuse(NotOpen(), scope, receive, send)
        else:
            await found(scope, receive, send)

    def stop(self) -> None:
        """Answer everybody who waits, and end streams: the server is about to end."""
        if (found := self._application()) is not None:
            found.stop()

    def _application(self) -> Application | None:
        try:
            engine = self._engine()
        except NotOpen:
            return None
        if self._made is None or self._made[0] is not engine:
            self._made = (engine, application(engine, self._catalog(), self._authenticate))
        return self._made[1]

    async def _live(self, receive: Receive, send: Send) -> None:
        """From the start of a server to its end; the Perdure is open meanwhile."""
        await receive()
        is_ours = self._application() is None
        try:
            if is_ours:
                await self._app.__aenter__()
        except Exception as error:
            await send({"type": "lifespan.startup.failed", "message": str(error)})
            raise
        await send({"type": "lifespan.startup.complete"})
        try:
            await receive()
        finally:
            self.stop()
            if is_ours:
                await self._app.__aexit__(None, None, None)
        await send({"type": "lifespan.shutdown.complete"})
