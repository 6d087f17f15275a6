"""What the test kit needs of a Perdure, and nobody else: its own store and time in it, and a look inside."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from perdure.clock import Clock
from perdure.engine.engine import StoreEngine
from perdure.engine.ports import Engine
from perdure.http.remote.engine import RemoteEngine
from perdure.ids import Ids
from perdure.stores.port import Store

if TYPE_CHECKING:
    from perdure.worker.worker import Worker

from perdure.app.perdure import Perdure


def furnish(app: Perdure, store: Store, clock: Clock, ids: Ids, *, replay_always: bool) -> None:
    """Give a Perdure that is not open yet other parts; it has no thread and hears no signal of the process then."""
    app._store, app._clock, app._ids = store, clock, ids
    app._heartbeat = app._shutdown = None
    # A test process has the workflows of all its tests.
    app._announces = False
    if app._settings is not None:
        app._settings = msgspec.structs.replace(app._settings, replay_always=replay_always)


def engine_of(app: Perdure) -> Engine | None:
    """The engine of a Perdure, while it is open."""
    return app._engine


def worker_of(app: Perdure) -> "Worker | None":
    """The worker of a Perdure, while it is open and has one."""
    return app._worker


def abandon(app: Perdure) -> None:
    """Leave a Perdure as if its process had died."""
    engine, worker = app._engine, app._worker
    if worker is not None:
        worker.abandon()
    if isinstance(engine, StoreEngine | RemoteEngine):
        engine.abandon()
    app._engine = app._worker = None


def connect_by(app: Perdure, connect: Callable[[str, str | None], Engine]) -> None:
    """Let a Perdure over a server reach it in another way; before it is opened."""
    app._connect = connect
