"""An environment whose process works over a server: the same tests, over HTTP, on virtual time and without a socket."""

from typing import cast

from perdure import Perdure
from perdure.app.internals import abandon, connect_by, engine_of, furnish
from perdure.engine.engine import StoreEngine
from perdure.engine.ports import Engine
from perdure.http.access import anybody
from perdure.http.remote.engine import RemoteEngine
from perdure.testing import Environment, Fault
from tests.server.asgi_transport import AsgiTransport
from tests.server.in_process import Caller

# Time passes in jumps here, which no lease would outlive.
FOR_EVER_MS = 10**12
CALM_TURNS = 40


class HttpEnvironment(Environment):
    """A server over one database, and a process that works over it; `app` is the latter."""

    async def open(self, fault: tuple[int, Fault] | None = None) -> None:
        is_worker, self._is_worker = self._is_worker, False
        await super().open(fault)
        self.server, self._is_worker = self.app, is_worker
        if not self.has_died:
            self.engine.remote.lease_ms = FOR_EVER_MS
            await self._open_remote()

    async def _open_remote(self) -> None:
        self.transport = AsgiTransport(Caller(self.server.asgi(authenticate=anybody)))
        app = Perdure(
            "http://server:7373",
            workflows=self.workflows,
            park_after=self._park_after,
            max_live=self._max_live,
            grace=0,
            worker=self._is_worker,
            queues=self._queues,
            namespace=self._namespace,
            resources=self._resources,
        )
        furnish(app, self.store, self.clock, self._ids, replay_always=self._replay_always)
        connect_by(app, lambda url, key: cast("Engine", RemoteEngine(url, self.transport, self.clock, key)))
        self.app = app
        await self.alive(app.__aenter__())

    async def __aexit__(self, *error: object) -> None:
        if self.has_died:
            self.bury()
        else:
            await self.alive(self.app.__aexit__(None, None, None))
            await self.alive(self.server.__aexit__(None, None, None))

    @property
    def _engine(self) -> StoreEngine | None:
        engine = engine_of(getattr(self, "server", self.app))
        return engine if isinstance(engine, StoreEngine) else None

    def _enough(self) -> int:
        return CALM_TURNS

    def _is_idle(self) -> bool:
        remote: object = engine_of(self.app)
        if isinstance(remote, RemoteEngine) and not (remote.is_idle or remote.is_stalled):
            return False
        if getattr(self, "transport", None) is not None and self.transport.under_way:
            return False
        return super()._is_idle()

    def bury(self) -> None:
        abandon(self.server)
        super().bury()

    async def crash(self, fault: tuple[int, Fault] | None = None) -> None:
        remote: object = engine_of(self.app)
        before = remote.worker_id if isinstance(remote, RemoteEngine) else ""
        await super().crash(fault)
        for row in await self.store.reads.workers():
            if row.worker_id == before:
                # As after its lease.
                await self.engine.takeover.take_over(row)
