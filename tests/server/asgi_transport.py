"""A transport that calls an application without a socket, and may lose what it is told to."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import cast

from perdure import Perdure
from perdure.app.internals import connect_by
from perdure.engine.ports import Engine
from perdure.http.access import anybody
from perdure.http.remote.engine import RemoteEngine
from perdure.http.remote.transport import HttpAnswer
from perdure.testing import Environment
from tests.server.in_process import Caller


class AsgiTransport:
    """Hands requests to an application; `lose` says of each whether its answer is lost on the way."""

    def __init__(self, call: Caller) -> None:
        self._call = call
        self.lost = 0
        # The end of the paths whose answers are lost, and whether nobody is there at all.
        self.losing = ""
        self.is_down = False
        # What something before the server answers instead of it, and to which paths.
        self.instead: list[HttpAnswer] = []
        self.instead_at = ""
        # How many requests of a worker are under way, but for those that only listen.
        self.under_way = 0

    def lose(self, count: int, ending: str = "") -> None:
        """Lose the answers to the next requests, or to those to a path; what they asked for is done."""
        self.lost, self.losing = count, ending

    async def request(self, method: str, path: str, headers: Mapping[str, str], body: bytes | None) -> HttpAnswer:
        if self.is_down:
            raise ConnectionError("nobody is there")
        if self.instead and path.partition("?")[0].endswith(self.instead_at):
            return self.instead.pop(0)
        counts = path.startswith("/v1/workers/") and "/listen" not in path
        self.under_way += counts
        try:
            answer = await self._call(method, path, raw=body or b"", **dict(headers))
        finally:
            self.under_way -= counts
        if self.lost and path.partition("?")[0].endswith(self.losing):
            self.lost -= 1
            raise ConnectionError("the answer was lost")
        return HttpAnswer(*answer)

    async def lines(self, path: str, headers: Mapping[str, str]) -> AsyncIterator[bytes]:
        async for frame in self._call.raw_frames(path, **dict(headers)):
            for line in frame.split(b"\n"):
                yield line + b"\n"

    async def close(self) -> None:
        pass


@asynccontextmanager
async def over_http(env: Environment) -> AsyncIterator[tuple[Perdure, AsgiTransport]]:
    """A client whose requests are handed to the application over the environment's engine."""
    async with env:
        transport = AsgiTransport(Caller(env.app.asgi(authenticate=anybody)))
        client = Perdure("http://server:7373", worker=False)
        connect_by(client, lambda url, key: cast("Engine", RemoteEngine(url, transport, env.clock, key)))
        async with client:
            yield client, transport
