"""A transport that calls an application without a socket, and may lose what it is told to."""

from collections.abc import AsyncIterator, Mapping

from perdure.http.remote.transport import HttpAnswer
from tests.server.in_process import Caller


class AsgiTransport:
    """Hands requests to an application; `lose` says of each whether its answer is lost on the way."""

    def __init__(self, call: Caller) -> None:
        self._call = call
        self.lost = 0

    def lose(self, count: int) -> None:
        """Lose the answers to the next requests; what they asked for is done."""
        self.lost = count

    async def request(self, method: str, path: str, headers: Mapping[str, str], body: bytes | None) -> HttpAnswer:
        answer = await self._call(method, path, raw=body or b"", **dict(headers))
        if self.lost:
            self.lost -= 1
            raise ConnectionError("the answer was lost")
        return HttpAnswer(*answer)

    async def lines(self, path: str, headers: Mapping[str, str]) -> AsyncIterator[bytes]:
        async for frame in self._call.raw_frames(path, **dict(headers)):
            for line in frame.split(b"\n"):
                yield line + b"\n"

    async def close(self) -> None:
        pass
