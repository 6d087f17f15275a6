"""The server: the application behind uvicorn, in the loop of whoever opened the engine.

In:   an application, an address, certificates.
Out:  the address it listens on; an end that answers everybody who waits first.
"""

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Iterator

import msgspec
import uvicorn

from perdure.errors import BadOption
from perdure.http.access import AsgiApplication
from perdure.http.mounting.connections import CarefulConnection
from perdure.http.mounting.proxies import Placed
from perdure.http.server_stop import ServerStop

BACKLOG = 2048
# Nothing is expected of callers there.
LARGEST_MESSAGE = 16 * 1024


class Listening(msgspec.Struct, frozen=True):
    """Where to listen, and how."""

    host: str
    port: int
    tls_cert: str | None = None
    tls_key: str | None = None
    reuse_port: bool = False
    behind_proxy: bool = False


class Server:
    """An application that listens."""

    def __init__(
        self, application: AsgiApplication, listening: Listening, stopping: ServerStop, prefix: str = ""
    ) -> None:
        self._listening = listening
        self._stopping = stopping
        config = uvicorn.Config(
            Placed(application, prefix, behind_proxy=listening.behind_proxy),
            http=CarefulConnection,
            ws="wsproto",
            ws_max_size=LARGEST_MESSAGE,
            loop="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            # Who calls is told by a proxy that we were told of, and by nobody else.
            proxy_headers=False,
            backlog=BACKLOG,
            ssl_certfile=listening.tls_cert,
            ssl_keyfile=listening.tls_key,
        )
        self._uvicorn = _Quiet(config)
        self._task: asyncio.Task[None] | None = None
        self._sockets: list[socket.socket] = []
        self.prefix = prefix

    @property
    def url(self) -> str:
        """The address it listens on."""
        scheme = "http" if self._listening.tls_cert is None else "https"
        host, port = self._sockets[0].getsockname()[:2]
        shown = f"[{host}]" if ":" in host else host
        return f"{scheme}://{shown}:{port}{self.prefix}"

    async def begin(self) -> None:
        """Listen; BadOption when the address cannot be had, or the certificate is none."""
        _check_certificate(self._listening)
        self._sockets = [_bound(self._listening)]
        self._task = asyncio.create_task(self._uvicorn.serve(sockets=self._sockets))
        begun = asyncio.create_task(self._uvicorn.begun.wait())
        await asyncio.wait({begun, self._task}, return_when=asyncio.FIRST_COMPLETED)
        begun.cancel()
        if self._task.done():
            await self._task

    async def end(self, grace: float) -> None:
        """Answer who waits, end streams, let requests under way finish for so many seconds, and close."""
        self._stopping.stop()
        if self._task is None:
            return
        self._uvicorn.config.timeout_graceful_shutdown = max(1, round(grace))
        self._uvicorn.should_exit = True
        await asyncio.wait({self._task})


class _Quiet(uvicorn.Server):
    """Leaves the signals of the process to those who opened the engine, and says when it listens."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.begun = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.begun.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def _check_certificate(listening: Listening) -> None:
    if listening.tls_cert is None:
        return
    try:
        ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(listening.tls_cert, listening.tls_key)
    except OSError as error:
        both = f"the certificate {listening.tls_cert!r} with the key {listening.tls_key!r}"
        raise BadOption(f"{both} cannot be used: {error.strerror or error}; both are files in PEM") from None


def _bound(listening: Listening) -> socket.socket:
    family = socket.AF_INET6 if ":" in listening.host else socket.AF_INET
    # The protocol by name: else asyncio does not know it for TCP and leaves Nagle on, and every answer takes 40 ms.
    sock = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if listening.reuse_port:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        sock.bind((listening.host, listening.port))
    except OSError as error:
        sock.close()
        where = f"{listening.host}:{listening.port}"
        raise BadOption(f"cannot listen on {where}: {error.strerror}; name another address with --listen") from None
    sock.setblocking(False)
    return sock
