"""The transport that programs use: aiohttp, with connections that stay open."""

from collections.abc import AsyncIterator, Mapping

import aiohttp
from yarl import URL

from perdure.http.remote.connection import UNAVAILABLE, problem_in
from perdure.http.remote.transport import HttpAnswer

CONNECT_SECONDS = 10.0
# A long poll waits for at most a minute; what takes longer is lost.
ANSWER_SECONDS = 90.0
MOST_CONNECTIONS = 100


class AiohttpTransport:
    """Requests to one server."""

    def __init__(self, url: str) -> None:
        self._url = url.rstrip("/")
        self._quick: aiohttp.ClientSession | None = None
        # What waits for long has connections of its own, as many as it likes: it must not keep others from one.
        self._waiting: aiohttp.ClientSession | None = None

    def _session(self, path: str) -> aiohttp.ClientSession:
        if _is_long(path):
            self._waiting = self._waiting or _opened(0)
            return self._waiting
        self._quick = self._quick or _opened(MOST_CONNECTIONS)
        return self._quick

    async def request(self, method: str, path: str, headers: Mapping[str, str], body: bytes | None) -> HttpAnswer:
        """Ask, and wait for the answer."""
        try:
            async with self._session(path).request(
                method, self._address(path), headers=headers, data=body, allow_redirects=False
            ) as answer:
                found = {name.lower(): value for name, value in answer.headers.items()}
                return HttpAnswer(answer.status, found, await answer.read())
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            raise _told(error) from None

    async def lines(self, path: str, headers: Mapping[str, str]) -> AsyncIterator[bytes]:
        """The lines of a stream, as they come."""
        self._waiting = self._waiting or _opened(0)
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS, sock_read=ANSWER_SECONDS)
        try:
            async with self._waiting.get(
                self._address(path), headers=headers, timeout=timeout, allow_redirects=False
            ) as answer:
                if answer.status != 200:  # noqa: PLR2004 - the number is its name
                    found = problem_in(await answer.read())
                    if found is None or answer.status == UNAVAILABLE:
                        raise ConnectionError(
                            found or f"something before the server answered {answer.status} by itself"
                        )
                    raise found
                async for line in answer.content:
                    yield line
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            raise _told(error) from None

    def _address(self, path: str) -> URL:
        # Encoded already: a slash in an id must stay one.
        return URL(self._url + path, encoded=True)

    async def close(self) -> None:
        """Let go of all connections."""
        for session in (self._quick, self._waiting):
            if session is not None:
                await session.close()


def _opened(most: int) -> aiohttp.ClientSession:
    # How long a connection takes is counted, and not how long it takes until one is free.
    timeout = aiohttp.ClientTimeout(total=ANSWER_SECONDS, sock_connect=CONNECT_SECONDS)
    return aiohttp.ClientSession(timeout=timeout, connector=aiohttp.TCPConnector(limit=most))


def _is_long(path: str) -> bool:
    """Whether the server may take its time for the answer: a poll for a result, or for the answer to a request."""
    route, _, query = path.partition("?")
    return "wait=" in query or route.endswith("/requests")


def _told(error: Exception) -> ConnectionError:
    """What went wrong, in as few words as there are for what people meet first: nothing listens there."""
    if isinstance(error, aiohttp.ClientConnectorError) and isinstance(error.os_error, ConnectionRefusedError):
        return ConnectionError("connection refused")
    return ConnectionError(str(error) or type(error).__name__)
