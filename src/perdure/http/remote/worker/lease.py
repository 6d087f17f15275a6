"""The lease of this worker at a server: registered, kept by listening, and begun anew when it is lost.

In:   the host of this process; answers of the server, each with its time.
Out:  an id and an epoch that go with every call, the tenure that runs are given under, messages for the host.

While the server does not answer, the worker keeps what it has for as long as its lease lasts; then it drops everything
and registers anew.
"""

import asyncio
import logging
import os
import socket
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any, TypeVar
from urllib.parse import quote

import msgspec

from perdure.clock import Clock, ToldTime, pause
from perdure.engine.background import Background
from perdure.engine.outages import Outage
from perdure.engine.ports import NO_TENURE, AnnouncedWorkflow, Host, Tenure
from perdure.engine.watch import in_their_order
from perdure.errors import LeaseLost, PerdureError, StoreUnavailable
from perdure.http.remote.connection import Connection
from perdure.http.remote.worker.handed import WireNews, news_in
from perdure.stores.records import NewMessage

T = TypeVar("T")

log = logging.getLogger("perdure.worker")

WORKERS = "/v1/workers"
# So many seconds a worker listens at a time: with every call its lease is prolonged.
LISTEN_SECONDS = 3.0
AGAIN_MS = 500


class GivenLease(msgspec.Struct, frozen=True):
    """A lease as the server gives it."""

    worker_id: str
    epoch: int
    lease: float
    now: int


class HeardNews(msgspec.Struct, frozen=True):
    """What was heard, as the server tells it."""

    lease: float
    now: int
    news: WireNews
    work: int


class KeyedTenure(Tenure):
    """What runs of one lease are given under, with the key of each."""

    def __init__(self) -> None:
        super().__init__()
        self.keys: dict[str, bytes] = {}

    def key_of(self, run_id: str) -> bytes:
        """The key that the tokens of a run are made with."""
        return self.keys[run_id]


class ServerLease:
    """The worker of this process, as the server knows it."""

    def __init__(self, connection: Connection, clock: Clock, told: ToldTime | None) -> None:
        self._connection = connection
        self._clock = clock
        self._told = told
        self.background = Background(clock)
        self.host: Host | None = None
        self.tenure: Tenure = NO_TENURE
        self.worker_id = ""
        self.epoch = 0
        self.namespace = ""
        self.names: tuple[str, ...] = ()
        self.after = 0
        self._work = 0
        # Called when everything is lost.
        self.on_lost: Callable[[], None] = lambda: None
        # Messages for runs that are being claimed, while there are claims under way.
        self.early: dict[str, list[NewMessage]] = {}
        self.claims = 0
        self._queues: tuple[str, ...] = ()
        self._workflows: Sequence[AnnouncedWorkflow] = ()
        self._lease_ms = 0
        self._heard_at = 0
        self._listening: asyncio.Task[None] | None = None
        self._is_closed = False
        self._outage = Outage(clock, "server_away", "the server does not answer", "the server answers again")

    @property
    def keys(self) -> dict[str, bytes]:
        """The runs that this worker has, and the keys of their tokens; none while it has no lease."""
        return self.tenure.keys if isinstance(self.tenure, KeyedTenure) else {}

    @property
    def is_held(self) -> bool:
        """Whether there is a lease, or was until just now; not while the worker registers anew."""
        return isinstance(self.tenure, KeyedTenure)

    # Beginning and ending

    async def begin(self, namespace: str, queues: tuple[str, ...], host: Host) -> None:
        """Become a worker for these queues of a namespace."""
        self.namespace, self._queues, self.host = namespace, queues, host
        self.names = host.names()
        await self._begin_at_all()
        self._listening = asyncio.get_running_loop().create_task(self._listen())

    async def _begin_at_all(self) -> None:
        """Register; once more when this process was stopped for longer than a lease while it did."""
        while True:
            with suppress(LeaseLost):
                await self._register()
                return

    async def _register(self) -> None:
        body = {"name": f"{socket.gethostname()}:{os.getpid()}", "queues": self._queues}
        asked = self._clock.monotonic() * 1_000_000
        data = await self._connection.post(WORKERS, body, namespace=self.namespace)
        given = msgspec.json.decode(data, type=GivenLease)
        self.worker_id, self.epoch, self.after = given.worker_id, given.epoch, 0
        self._answered(given.lease, given.now, asked)
        await self._say(names=self.names)
        self.tenure = KeyedTenure()
        log.info("worker registered", extra={"event": "worker_registered", "worker_id": self.worker_id})

    async def announce(self, **said: object) -> None:
        """Tell the server what this worker has code for and declares; under its next lease if this one is lost."""
        while True:
            tenure = self.tenure
            try:
                await self._say(**said)
            except LeaseLost:
                if self._is_closed:
                    raise
                self.lost(tenure)
                await pause(self._clock, AGAIN_MS)
            else:
                return

    async def _say(self, **said: object) -> None:
        await self.post("announce", said)

    async def declare(self, schedules: dict[str, Any]) -> None:
        """Tell the server all schedules that the code of this worker declares."""
        await self.announce(names=self.names, schedules=schedules)

    async def tell(self, names: tuple[str, ...]) -> None:
        """Let the server know that there is other code by now."""
        await self._say(names=names)
        self.names = names

    async def close(self) -> None:
        """Hand back what is left, and leave."""
        self.cancel()
        if self.tenure is not NO_TENURE:
            self.tenure = NO_TENURE
            try:
                at = {"namespace": self.namespace, "epoch": self.epoch}
                await self._connection.ask("DELETE", f"{WORKERS}/{self.worker_id}", at)
            except PerdureError as error:
                log.info("the worker could not leave: %s", error, extra={"event": "leaving_failed"})

    def cancel(self) -> None:
        """Listen no more."""
        self._is_closed = True
        if self._listening is not None:
            self._listening.cancel()
        self.background.cancel()

    # Calls

    def path(self, *rest: str) -> str:
        """The path of a call of this worker."""
        return "/".join([WORKERS, self.worker_id, *(quote(part, safe="") for part in rest)])

    async def post(self, verb: str, body: dict[str, Any]) -> bytes:
        """Ask once; LeaseLost, StoreUnavailable."""
        data = msgspec.json.encode({"epoch": self.epoch, **body})
        return await self._connection.once("POST", self.path(verb), {"namespace": self.namespace}, data)

    async def get(self, *path: str, **query: object) -> bytes:
        """Read once; LeaseLost, StoreUnavailable."""
        asked = {"namespace": self.namespace, "epoch": self.epoch, **query}
        return await self._connection.once("GET", self.path(*path), asked)

    def answered(self) -> None:
        """The server has answered: it has prolonged the lease, or will when a third of it is over."""
        self._heard_at = self._clock.monotonic()

    def _answered(self, lease: float, now: int, asked_ns: int) -> None:
        if self._told is not None:
            self._told.tell(now * 1_000_000, asked_ns)
        self._lease_ms = round(lease * 1000)
        self.answered()

    def is_over(self) -> bool:
        """Whether the lease is over, as far as is known here."""
        return self._clock.monotonic() - self._heard_at > self._lease_ms

    # Losing it

    def lost(self, tenure: Tenure) -> None:
        """Nothing of what was given under this is ours any more: drop it, and begin anew."""
        if tenure is not self.tenure or not self.is_held or self._is_closed:
            return
        log.warning("lease lost", extra={"event": "lease_lost", "worker_id": self.worker_id})
        self.tenure = Tenure()
        self.early.clear()
        self.on_lost()
        if self.host is not None:
            self.host.evict_all()
        self.background.spawn(self._begin_anew())

    async def _begin_anew(self) -> None:
        await self.patiently(self._register_or_not)
        if self.host is not None:
            self.host.look_around()

    async def _register_or_not(self) -> None:
        try:
            await self._register()
        except PerdureError as error:
            # Whatever it is: a worker that gave up here would do nothing for ever.
            raise StoreUnavailable(self._connection.url, str(error)) from None

    async def patiently(self, work: Callable[[], Awaitable[T]]) -> T:
        """Until it is done, however long the server is away."""
        while True:
            try:
                done = await work()
            except (StoreUnavailable, LeaseLost) as error:
                self._outage.fails(error)
                await self.background.stall(AGAIN_MS)
            else:
                self._outage.is_over()
                return done

    # Listening

    async def _listen(self) -> None:
        while not self._is_closed:
            tenure = self.tenure
            if not isinstance(tenure, KeyedTenure):
                await pause(self._clock, AGAIN_MS)
                continue
            try:
                heard = await self._hear()
            except LeaseLost:
                self.lost(tenure)
            except PerdureError as error:
                self._outage.fails(error)
                if self.is_over():
                    self.lost(tenure)
                await pause(self._clock, AGAIN_MS)
            else:
                self._outage.is_over()
                if tenure is self.tenure:
                    self._go_on(heard)

    async def _hear(self) -> HeardNews:
        asked = self._clock.monotonic() * 1_000_000
        data = await self.post("listen", {"after": self.after, "work": self._work, "wait": LISTEN_SECONDS})
        heard = msgspec.json.decode(data, type=HeardNews)
        self._answered(heard.lease, heard.now, asked)
        return heard

    def _go_on(self, heard: HeardNews) -> None:
        """Hand over what was heard."""
        self.take_in(heard.news)
        if heard.work != self._work and self.host is not None:
            self._work = heard.work
            self.host.look_around()

    def take_in(self, news: WireNews) -> None:
        """Hand messages to the runs that they are for; to those that are being claimed, a moment later."""
        self.after = max(self.after, news.after)
        for each in in_their_order(news_in(news)):
            self.notice(each)

    def notice(self, each: NewMessage) -> None:
        """A message has come for a run."""
        if self.host is None or isinstance(each.message, Exception):
            return
        if not self.host.notice(each.run_id, each.message, each.had) and self.claims:
            self.early.setdefault(each.run_id, []).append(each)
