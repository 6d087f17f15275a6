"""A proxy before Postgres that cuts connections off around what they commit.

In:   the port of a server; when to cut, and how.
Out:  a port of its own, and how often it has cut what.
Knows just enough of the protocol to see where a message ends, and which ones commit a batch.
"""

import asyncio
from collections import Counter
from contextlib import suppress
from enum import Enum
from typing import Self

READ = 1 << 16
# How late something may arrive at the server when its sender is gone already; long enough for it to have begun anew.
LATE_SECONDS = 0.4
# The name under which the connections come that write, and what they send in one round trip.
WRITES, BATCH = b"perdure writes", b"write_batch_"


class Cut(Enum):
    """What becomes of a commit, and of its answer."""

    BEFORE = "the server gets nothing of it"
    HALF = "the server gets the first half of it"
    IN = "the server gets it, and nobody waits for the answer"
    AFTER = "the server answers, and nobody hears it"
    LATE = "the server gets it when its sender has given it up"


class Proxy:
    """Passes on what it hears, but for one commit now and then."""

    def __init__(self, server_port: int) -> None:
        self._server_port = server_port
        self._next: tuple[Cut, str] | None = None
        self._done: Counter[str] = Counter()
        self._links: set[asyncio.Task[None]] = set()
        self.is_open = asyncio.Event()
        self.is_open.set()
        self.port = 0

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for link in self._links:
            link.cancel()
        await asyncio.gather(*self._links, return_exceptions=True)

    def part(self) -> None:
        """Pass nothing on from now on, and let neither end know."""
        self.is_open.clear()

    def mend(self) -> None:
        """Pass on what has come meanwhile, and all that comes."""
        self.is_open.set()

    def cut_next(self, cut: Cut, what: str) -> None:
        """Cut off the next "batch" that goes in one round trip, or "commit" of one that goes in steps, of anybody."""
        self._next = (cut, what)

    @property
    def is_about_to_cut(self) -> bool:
        return self._next is not None

    def take_cut(self, what: str) -> Cut | None:
        """How to cut off this commit, if at all."""
        if self._next is None or self._next[1] != what:
            return None
        (cut, _), self._next = self._next, None
        self._done[f"{cut.name.lower()} a {what}"] += 1
        return cut

    def told(self) -> dict[str, int]:
        return dict(self._done)

    async def _serve(self, client: asyncio.StreamReader, answers: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._links.add(task)
        task.add_done_callback(self._links.discard)
        try:
            server, commands = await asyncio.open_connection("127.0.0.1", self._server_port)
        except OSError:
            answers.close()
            return
        with suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            await Link(self, client, answers, server, commands).pass_on()
        for end in (commands, answers):
            end.close()


class Link:
    """One connection through the proxy."""

    def __init__(
        self,
        proxy: Proxy,
        client: asyncio.StreamReader,
        answers: asyncio.StreamWriter,
        server: asyncio.StreamReader,
        commands: asyncio.StreamWriter,
    ) -> None:
        self._proxy = proxy
        self._client, self._answers = client, answers
        self._server, self._commands = server, commands
        self._batches: set[bytes] = set()
        self._is_muted = False
        self._has_answered = asyncio.Event()

    async def pass_on(self) -> None:
        """Until one of both ends has gone, or the link was cut."""
        ways = [asyncio.create_task(self._pass_commands()), asyncio.create_task(self._pass_answers())]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)

    async def _pass_answers(self) -> None:
        while data := await self._server.read(READ):
            if self._is_muted:
                # ReadyForQuery is the last of every answer.
                if data[-6:-5] == b"Z":
                    self._has_answered.set()
            else:
                await self._proxy.is_open.wait()
                self._answers.write(data)
                await self._answers.drain()
        # Whoever waits for the answer of a server that has left is told so as well.
        self._has_answered.set()

    async def _pass_commands(self) -> None:
        writes = WRITES in await self._pass_opening()
        while True:
            message = await self._message()
            what = self._committed_by(message) if writes else None
            cut = None if what is None else self._proxy.take_cut(what)
            if cut is not None:
                await self._cut(cut, message)
                return
            await self._proxy.is_open.wait()
            await self._send(message)

    async def _pass_opening(self) -> bytes:
        """What comes before all messages, the last of it with the client's name; encryption is asked for and denied."""
        while True:
            head = await self._client.readexactly(4)
            opening = head + await self._client.readexactly(int.from_bytes(head) - 4)
            await self._proxy.is_open.wait()
            await self._send(opening)
            if len(opening) > 8:
                return opening

    async def _message(self) -> bytes:
        head = await self._client.readexactly(5)
        return head + await self._client.readexactly(int.from_bytes(head[1:]) - 4)

    def _committed_by(self, message: bytes) -> str | None:
        """What this message makes the server commit, if anything."""
        kind, words = message[:1], message[5:].split(b"\0")
        if kind == b"P" and BATCH in words[1]:
            self._batches.add(words[0])
        if kind == b"Q" and words[0].strip() == b"commit":
            return "commit"
        # A portal's name, then the statement's.
        return "batch" if kind == b"B" and words[1] in self._batches else None

    async def _cut(self, cut: Cut, message: bytes) -> None:
        match cut:
            case Cut.BEFORE:
                pass
            case Cut.HALF:
                self._commands.write(message[: len(message) // 2])
                await self._commands.drain()
            case Cut.IN:
                await self._send(await self._whole(message))
            case Cut.AFTER:
                self._is_muted = True
                await self._send(await self._whole(message))
                await self._has_answered.wait()
            case Cut.LATE:
                self._is_muted = True
                whole = await self._whole(message)
                self._answers.transport.abort()
                await asyncio.sleep(LATE_SECONDS)
                await self._send(whole)
                await self._has_answered.wait()

    async def _whole(self, message: bytes) -> bytes:
        """A message and those that belong to it, to the one that lets the server do them."""
        whole = message
        while message[:1] not in {b"S", b"Q"}:
            message = await self._message()
            whole += message
        return whole

    async def _send(self, commands: bytes) -> None:
        self._commands.write(commands)
        await self._commands.drain()
