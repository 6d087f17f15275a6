"""A server over an opened Perdure, as `perdure serve` starts it."""

import asyncio

from perdure.app.network.serving import ServerOptions, first_key, server_for
from perdure.app.perdure import Perdure
from perdure.engine.engine import StoreEngine
from perdure.http.server import Server


async def begin_server(app: Perdure, options: ServerOptions) -> tuple[Server, str | None]:
    """A server that listens; and the first key of a database that had none, unless nobody needs one."""
    engine = app._opened
    if isinstance(engine, StoreEngine):
        engine.committer.gathers = True
    server = server_for(engine, app._catalog, options)
    await server.begin()
    try:
        # Last: a key that was made for a server which cannot listen would never be shown.
        return server, None if options.no_auth else await first_key(engine)
    except BaseException:
        await server.end(0)
        raise


async def end_server(app: Perdure, server: Server, grace: float) -> None:
    """Answer who waits and end; what that takes of the grace is no more there for the activities of the Perdure."""
    clock = asyncio.get_running_loop().time
    began = clock()
    await server.end(grace)
    app._grace_ms = max(0, min(app._grace_ms, round((grace - (clock() - began)) * 1000)))
