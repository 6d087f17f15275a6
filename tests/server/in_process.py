"""Requests to the application without a socket: what a server would hand to it, and what it answers."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, MutableMapping
from contextlib import aclosing
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

import msgspec

from perdure.errors import PerdureError
from perdure.http.access import AsgiApplication
from perdure.http.problems import error_of


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return msgspec.json.decode(self.body)


class Caller:
    """Calls an application; headers given here go with every request."""

    def __init__(self, application: AsgiApplication, prefix: str = "", **headers: str) -> None:
        self._application = application
        self._prefix = prefix
        self._headers = headers
        # Set when it has gone, though requests of its own are under way.
        self.gone = asyncio.Event()

    def scope(self, method: str, url: str, headers: dict[str, str]) -> dict[str, Any]:
        parts = urlsplit(url)
        return {
            "type": "http",
            "method": method,
            "path": self._prefix + unquote(parts.path),
            "raw_path": (self._prefix + parts.path).encode(),
            "root_path": self._prefix,
            "query_string": parts.query.encode(),
            "headers": [(name.lower().encode(), value.encode()) for name, value in headers.items()],
        }

    async def __call__(
        self, method: str, url: str, body: Any = None, *, raw: bytes | None = None, **headers: str
    ) -> Answer:
        data = raw if raw is not None else b"" if body is None else msgspec.json.encode(body)
        sent = {name.replace("_", "-"): value for name, value in (self._headers | headers).items()}
        if data and "content-type" not in sent:
            sent["content-type"] = "application/json"
        messages = [{"type": "http.request", "body": data, "more_body": False}]
        found: list[MutableMapping[str, Any]] = []

        async def receive() -> MutableMapping[str, Any]:
            if messages:
                return messages.pop()
            await self.gone.wait()
            return {"type": "http.disconnect"}

        async def send(message: MutableMapping[str, Any]) -> None:
            found.append(message)

        await self._application(self.scope(method, url, sent), receive, send)
        head = {name.decode(): value.decode() for name, value in found[0]["headers"]}
        return Answer(found[0]["status"], head, b"".join(each["body"] for each in found[1:]))

    async def get(self, url: str, **headers: str) -> Answer:
        return await self("GET", url, None, raw=None, **headers)

    async def post(self, url: str, body: Any = None, **headers: str) -> Answer:
        return await self("POST", url, {} if body is None else body, raw=None, **headers)

    async def frames(self, url: str, **headers: str) -> AsyncIterator[dict[str, Any]]:
        """The frames of a stream, as a browser would read them; leaving it disconnects.

        Signs of life are left out: how many there are depends on how long the database takes.
        """
        async with aclosing(self.raw_frames(url, **headers)) as frames:
            async for data in frames:
                for text in data.decode().split("\n\n"):
                    lines = dict(line.split(": ", 1) for line in text.splitlines() if not line.startswith(":"))
                    if lines and lines.get("event") != "alive":
                        yield {**lines, "data": msgspec.json.decode(lines.get("data", "null"))}

    async def raw_frames(self, url: str, **headers: str) -> AsyncGenerator[bytes, None]:
        """What comes of a stream, piece by piece; an answer that is no stream raises its problem."""
        queue: asyncio.Queue[bytes | None] = asyncio.Queue()
        gone = asyncio.Event()
        statuses: list[int] = []
        refusals: list[PerdureError] = []

        async def receive() -> MutableMapping[str, Any]:
            await gone.wait()
            return {"type": "http.disconnect"}

        async def send(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                statuses.append(message["status"])
            elif statuses[0] != 200:
                refusals.append(error_of(msgspec.json.decode(message["body"])))
                await queue.put(None)
            else:
                await queue.put(message["body"] if message.get("more_body") else None)

        sent = {"accept": "text/event-stream"}
        sent |= {name.replace("_", "-"): value for name, value in (self._headers | headers).items()}
        task = asyncio.ensure_future(self._application(self.scope("GET", url, sent), receive, send))
        try:
            while (data := await queue.get()) is not None:
                yield data
            if refusals:
                raise refusals[0]
        finally:
            gone.set()
            await task
