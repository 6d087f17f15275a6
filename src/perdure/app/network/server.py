"""A server over an opened Perdure, as `perdure serve` starts it."""

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
