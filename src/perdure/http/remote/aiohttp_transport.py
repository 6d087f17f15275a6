"""The transport that programs use: aiohttp, with connections that stay open."""

from collections.abc import AsyncIterator, Mapping

import aiohttp
from yarl import URL

from perdure.http.remote.connection import problem_in
from perdure.http.remote.transport import HttpAnswer

CONNECT_SECONDS = 10.0
# A long poll waits for at most a minute; what takes longer is lost.
ANSWER_SECONDS = 90.0
MOST_CONNECTIONS = 100


class AiohttpTransport:
    """Requests to one server."""

    def __init__(self, url: str) -> None:
        self._url = url.rstrip("/")
        self._session: aiohttp.ClientSession | None = None

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            timeout = aiohttp.ClientTimeout(total=ANSWER_SECONDS, connect=CONNECT_SECONDS)
            connector = aiohttp.TCPConnector(limit=MOST_CONNECTIONS)
            self._session = aiohttp.ClientSession(timeout=timeout, connector=connector)
        return self._session

    async def request(self, method: str, path: str, headers: Mapping[str, str], body: bytes | None) -> HttpAnswer:
        """Ask, and wait for the answer."""
        session = self._open()
        try:
            async with session.request(
                method, self._address(path), headers=headers, data=body, allow_redirects=False
            ) as answer:
                found = {name.lower(): value for name, value in answer.headers.items()}
                return HttpAnswer(answer.status, found, await answer.read())
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            raise ConnectionError(str(error) or type(error).__name__) from None

    async def lines(self, path: str, headers: Mapping[str, str]) -> AsyncIterator[bytes]:
        """The lines of a stream, as they come."""
        session = self._open()
        timeout = aiohttp.ClientTimeout(total=None, connect=CONNECT_SECONDS, sock_read=ANSWER_SECONDS)
        try:
            async with session.get(self._address(path), headers=headers, timeout=timeout) as answer:
                if answer.status != 200:  # noqa: PLR2004 - the number is its name
                    found = problem_in(await answer.read())
                    raise found or ConnectionError(f"something before the server answered {answer.status} by itself")
                async for line in answer.content:
                    yield line
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            raise ConnectionError(str(error) or type(error).__name__) from None

    def _address(self, path: str) -> URL:
        # Encoded already: a slash in an id must stay one.
        return URL(self._url + path, encoded=True)

    async def close(self) -> None:
        """Let go of all connections."""
        if self._session is not None:
            await self._session.close()
