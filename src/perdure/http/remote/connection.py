"""The connection to a server: asks, asks again when an answer is lost, and raises what the server met.

In:   a route and what goes with it.
Out:  the bytes of the answer; the error of its own class; StoreUnavailable when no answer comes.
A change that is asked for again carries the same Idempotency-Key, so that it is made once.
"""

import copy
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing
from typing import Any, NamedTuple, cast
from urllib.parse import quote, urlencode
from uuid import uuid4

import msgspec

from perdure.clock import Clock, pause
from perdure.errors import KeyInProgress, PerdureError, StoreUnavailable
from perdure.http.problems import error_of
from perdure.http.remote.transport import HttpAnswer, Transport

# So long a server that does not answer is asked again, with growing pauses.
PATIENCE_MS = 10_000
FIRST_PAUSE_MS, LONGEST_PAUSE_MS = 50, 1000
UNAVAILABLE = 503
MOVED, PROBLEM = 300, 400
# What is said of the stream itself; it goes on after the last frame, maybe on another connection.
ABOUT_THE_STREAM = frozenset({"alive", "stop", "gap"})


class RemoteFrame(NamedTuple):
    """One event of a stream of the server's."""

    id: str
    event: str
    data: bytes


class Connection:
    """One server, and the key that is shown to it."""

    def __init__(self, url: str, transport: Transport, clock: Clock, key: str | None) -> None:
        self.url = url
        self.clock = clock
        self._transport = transport
        self._idempotency_key: str | None = None
        self._headers = {"accept": "application/json"}
        if key is not None:
            self._headers["authorization"] = f"Bearer {key}"

    def with_key(self, key: str) -> "Connection":
        """The same, whose changes are asked for under this idempotency key."""
        twin = copy.copy(self)
        twin._idempotency_key = key
        return twin

    async def get(self, path: str, **query: object) -> bytes:
        """What there is to read."""
        return (await self.ask("GET", path, query)).body

    async def post(self, path: str, body: object, *, key: str | None = None, **query: object) -> bytes:
        """A change; made once, however often it is asked for."""
        return (await self.ask("POST", path, query, msgspec.json.encode(body), key=key)).body

    async def ask(
        self,
        method: str,
        path: str,
        query: Mapping[str, object],
        body: bytes | None = None,
        *,
        key: str | None = None,
    ) -> HttpAnswer:
        """One request, asked again while no answer comes; the error that the server met."""
        headers = dict(self._headers)
        if body is not None:
            headers["content-type"] = "application/json"
        if method != "GET":
            headers["idempotency-key"] = key or self._idempotency_key or uuid4().hex
        address = path + _query(query)
        ends_at, wait, is_lost = 0, FIRST_PAUSE_MS, False
        while True:
            trouble: PerdureError
            try:
                answer = await self._transport.request(method, address, headers, body)
                if answer.status < MOVED:
                    return answer
                trouble = self._trouble(answer)
            except ConnectionError as error:
                trouble, is_lost = StoreUnavailable(self.url, f"the server does not answer: {error}"), True
            except KeyInProgress as error:
                if not is_lost:
                    raise
                # What was asked for before goes on at the server, for as long as it takes.
                trouble, ends_at = error, 0
            # From the first trouble on: the answer that was lost may have taken longer than that.
            ends_at = ends_at or self.clock.monotonic() + PATIENCE_MS
            if self.clock.monotonic() + wait > ends_at:
                raise trouble
            await pause(self.clock, wait)
            wait = min(wait * 2, LONGEST_PAUSE_MS)

    async def once(self, method: str, path: str, query: Mapping[str, object], body: bytes | None = None) -> bytes:
        """One request, asked once and under no key; the error that the server met, or StoreUnavailable."""
        headers = self._headers if body is None else self._headers | {"content-type": "application/json"}
        try:
            answer = await self._transport.request(method, path + _query(query), headers, body)
        except ConnectionError as error:
            raise StoreUnavailable(self.url, f"the server does not answer: {error}") from None
        if answer.status < MOVED:
            return answer.body
        raise self._trouble(answer)

    def _trouble(self, answer: HttpAnswer) -> StoreUnavailable:
        """That there is no server just now; raises what the server has against the request."""
        if answer.status < PROBLEM:
            where = answer.headers.get("location", "elsewhere")
            raise StoreUnavailable(
                self.url, f"what answers there sends callers on to {where}; give the address of that"
            )
        found = problem_in(answer.body)
        if found is not None and answer.status != UNAVAILABLE:
            raise found
        by_itself = f"something before the server answered {answer.status} by itself"
        return StoreUnavailable(self.url, by_itself if found is None else str(found))

    async def frames(self, path: str, **query: object) -> AsyncIterator[RemoteFrame]:
        """The frames of a stream until it ends; resumed after the last one when the connection is lost."""
        last: str | None = None
        ends_at, wait = 0, FIRST_PAUSE_MS
        while True:
            headers = self._headers | {"accept": "text/event-stream"}
            if last is not None:
                headers["last-event-id"] = last
            trouble = "the stream broke off"
            try:
                lines = self._transport.lines(path + _query(query), headers)
                async with aclosing(cast("Any", lines)):
                    async for frame in frames_in(lines):
                        last = frame.id or last
                        ends_at, wait = 0, FIRST_PAUSE_MS
                        if frame.event == "end":
                            return
                        if frame.event not in ABOUT_THE_STREAM:
                            yield frame
            except ConnectionError as error:
                trouble = str(error)
            ends_at = ends_at or self.clock.monotonic() + PATIENCE_MS
            if self.clock.monotonic() + wait > ends_at:
                raise StoreUnavailable(self.url, f"the server does not answer: {trouble}")
            await pause(self.clock, wait)
            wait = min(wait * 2, LONGEST_PAUSE_MS)

    async def close(self) -> None:
        """Let go of all connections."""
        await self._transport.close()


def problem_in(body: bytes) -> PerdureError | None:
    """The error that an answer tells of; None when it is not the server that speaks, but a proxy before it."""
    try:
        problem = msgspec.json.decode(body, type=dict[str, Any])
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
    # Proxies speak JSON as well, and of errors: what is of ours says so.
    is_ours = "error" in problem and str(problem.get("type")).startswith("urn:perdure:")
    return error_of(problem) if is_ours else None


async def frames_in(lines: AsyncIterator[bytes]) -> AsyncIterator[RemoteFrame]:
    """Frames out of the lines of server-sent events."""
    fields: dict[bytes, bytes] = {}
    async for line in lines:
        text = line.rstrip(b"\r\n")
        if text:
            name, _, value = text.partition(b":")
            fields[name] = value.removeprefix(b" ")
        elif fields:
            event = fields.get(b"event", b"message").decode()
            if b"data" in fields:
                yield RemoteFrame(fields.get(b"id", b"").decode(), event, fields[b"data"])
            fields = {}


def run_path(id: str, *rest: str) -> str:
    """The path of a run: its id is one segment, whatever is in it."""
    return "/".join(["/v1/runs", *(quote(part, safe="") for part in (id, *rest))])


def _query(given: Mapping[str, object]) -> str:
    pairs = [
        (name, str(each))
        for name, value in given.items()
        for each in (value if isinstance(value, tuple | list) else (value,))
        if each is not None
    ]
    return f"?{urlencode(pairs)}" if pairs else ""
