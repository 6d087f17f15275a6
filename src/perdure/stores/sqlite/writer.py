"""What waits for the write lock, in threads of its own: batches, and the renewals of a lease.

In:   batches that the loop could not write at once; renewals, from the heartbeat.
Out:  their outcomes; and, when another process keeps the lock for too long, who that is and what to do.

A process that is stopped inside a write holds the lock until it goes on or ends, and nobody can write past
it. Its lock cannot be waited for with a limit, so the thread waits on while the loop tells those that wait.
"""

import asyncio
import contextlib
import logging
import queue
import sqlite3
import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from functools import partial
from typing import Any, TypeAlias, TypeVar

from perdure.clock import elapsed
from perdure.errors import StoreUnavailable
from perdure.stores.answers import Failed, Outcome
from perdure.stores.operations import Batch
from perdure.stores.sqlite.locks import FileLock, holder_of
from perdure.threads import tell_loop

# How long a batch waits for the lock before its callers are told.
HELD_UP_SECONDS = 5.0
# How often the thread looks whether the loop is still there that it asked something.
LOOK_SECONDS = 1.0

T = TypeVar("T")

log = logging.getLogger("perdure.store")

Done: TypeAlias = Callable[[Any], None]
# Who is to be told of a batch; taken out by the thread that writes it, or by the loop that lost patience.
Ticket: TypeAlias = list[Done]


def blame(lock: FileLock) -> str:
    """Who holds the lock, and what to do."""
    holder = holder_of(lock.path)
    if holder is None:
        return "another process holds its write lock and does not write; find it, and let it go on or end it"
    who = f"process {holder.pid}{', which is stopped,' if holder.is_stopped else ''}"
    return (
        f"{who} holds its write lock and does not write, so nobody else can; let it go on "
        f"(`kill -CONT {holder.pid}`) or end it (`kill -9 {holder.pid}`), and all others go on by themselves"
    )


class Writer:
    """The thread that writes batches, one at a time; `held_up` says why nothing can be written now."""

    def __init__(self, url: str, lock: FileLock, transact: Callable[[Batch], Outcome]) -> None:
        self._url = url
        self._lock = lock
        self._transact = transact
        self._loop = asyncio.get_running_loop()
        self._ended: asyncio.Future[None] = self._loop.create_future()
        self._jobs: queue.SimpleQueue[tuple[Callable[[], object], Ticket] | None] = queue.SimpleQueue()
        self._ticket: Ticket = []
        self._waits_since: float | None = None
        self._patience: asyncio.TimerHandle | None = None
        self.held_up: StoreUnavailable | None = None
        threading.Thread(target=self._run, name="perdure-writer", daemon=True).start()

    def write(self, batch: Batch, done: Done) -> None:
        """Write a batch as soon as the lock is ours; `done` is called on the loop."""
        self.do(partial(self._transact, batch), done)

    def do(self, job: Callable[[], object], done: Done) -> None:
        """Do something as soon as the lock is ours; `done` is called on the loop, with what it returns."""
        if self.held_up is not None:
            self._loop.call_soon(done, Failed(self.held_up))
            return
        self._ticket = [done]
        if self._patience is None:
            self._patience = self._loop.call_later(HELD_UP_SECONDS, self._look)
        self._jobs.put((job, self._ticket))

    async def end(self) -> None:
        """Until the thread has ended; one that waits for a lock it may never get has nothing to write any more."""
        if self._patience is not None:
            self._patience.cancel()
        self._jobs.put(None)
        if self.held_up is None:
            await self._ended

    # On the loop

    def _look(self) -> None:
        """Tell whoever waits for a batch that has been waiting for the lock for too long."""
        self._patience = None
        if not self._ticket:
            return
        since = self._waits_since
        waited = 0.0 if since is None else elapsed() - since
        if waited < HELD_UP_SECONDS:
            self._patience = self._loop.call_later(HELD_UP_SECONDS - waited, self._look)
        else:
            self._lose_patience(StoreUnavailable(self._url, blame(self._lock)))

    def _lose_patience(self, error: StoreUnavailable) -> None:
        # Before the ticket is taken: the thread takes it back as soon as it finds none.
        self.held_up = error
        try:
            done = self._ticket.pop()
        except IndexError:
            # The lock was given up just now.
            self.held_up = None
            return
        log.warning("nothing can be written: %s", error, extra={"event": "writer_blocked"})
        done(Failed(error))

    # In the thread

    def on_loop(self, ask: Callable[[], T]) -> T | None:
        """What a function says on the loop's thread; None when the loop has ended."""
        told: Future[T | None] = Future()
        try:
            self._loop.call_soon_threadsafe(_tell, told, ask)
        except RuntimeError:
            return None
        while not wait([told], timeout=LOOK_SECONDS).done:
            if self._loop.is_closed():
                return None
        return told.result()

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            self._write(*job)
        tell_loop(self._ended)

    def _write(self, job: Callable[[], object], ticket: Ticket) -> None:
        self._waits_since = elapsed()
        self._lock.acquire(wait=True)
        self._waits_since = None
        try:
            done = ticket.pop()
        except IndexError:
            self._lock.release()
            self.held_up = None
            log.info("the database can be written again", extra={"event": "writer_free"})
            return
        try:
            outcome = job()
        finally:
            self._lock.release()
        with contextlib.suppress(RuntimeError):
            # A loop that has ended does not want to know.
            self._loop.call_soon_threadsafe(done, outcome)


def _tell(told: "Future[T | None]", ask: Callable[[], T]) -> None:
    try:
        told.set_result(ask())
    except BaseException as error:  # noqa: BLE001 - raised in the thread that asked
        told.set_exception(error)


class FileRenewals:
    """Renews leases on a connection of its own, from the heartbeat's thread."""

    def __init__(self, db: sqlite3.Connection, lock: FileLock, sql: str) -> None:
        self._db = db
        self._lock = lock
        self._sql = sql
        self._waits_since: float | None = None
        self._is_closed = False

    def renew(self, worker_id: str, epoch: int, lease_until: int) -> bool:
        """Prolong a lease; False when the epoch moved."""
        self._waits_since = elapsed()
        self._lock.acquire(wait=True)
        self._waits_since = None
        if self._is_closed:
            self._let_go()
            return True
        try:
            row = {"worker_id": worker_id, "epoch": epoch, "lease_until": lease_until}
            return self._db.execute(self._sql, row).rowcount == 1
        finally:
            self._lock.release()

    @property
    def is_held_up(self) -> bool:
        """Whether a renewal has been waiting for the lock for long."""
        since = self._waits_since
        return since is not None and elapsed() - since > HELD_UP_SECONDS

    def close(self) -> None:
        """Let go of the connection; a thread that waits for the lock does so when it gets it."""
        self._is_closed = True
        if self._waits_since is None:
            self._let_go()

    def _let_go(self) -> None:
        self._db.close()
        self._lock.close()
