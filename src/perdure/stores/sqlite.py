"""SQLite: one file, one writer per process, every commit synced to disk.

In:   batches, on the loop's thread.
Out:  their outcomes, and reads from a connection of their own.

A batch is one `begin immediate … commit` under a file lock that all Perdure
processes on the file share. Where the disk is quick it is written on the loop's
own thread, which saves two thread switches a commit; where it is slow, or another
process has the lock, a writer thread does it and the loop goes on.
Knows nothing of workflows, leases or retries.
"""

import asyncio
import contextlib
import queue
import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import msgspec

from perdure.clock import elapsed
from perdure.errors import NewerSchema, NotADatabase, StoreError, StoreUnavailable
from perdure.kernel.events import Event
from perdure.kernel.messages import Message
from perdure.stores import rows, writes
from perdure.stores.locks import FileLock, is_held
from perdure.stores.port import (
    Attempt,
    Batch,
    Committed,
    Failed,
    Fenced,
    LoadedRun,
    Outcome,
    RunFilter,
    RunRow,
    Unknown,
    WorkerRow,
)
from perdure.stores.queries import migrations, queries

OLDEST_SQLITE = (3, 38, 0)
# While a typical commit takes less than this many seconds, it is made on the loop's own thread.
INLINE_BELOW = 0.002
# How long the writer thread waits for a lock that somebody outside Perdure holds.
BUSY_MS = 5000

T = TypeVar("T")
_DEFINITE = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_FULL, sqlite3.SQLITE_READONLY}


class SqliteStore:
    """A SQLite file, or with path None a database in memory."""

    def __init__(self, path: str | None, *, threads: bool = True) -> None:
        self.url = f"sqlite:///{path}" if path else "sqlite://"
        self._path = Path(path) if path else None
        self._threads = threads and path is not None
        self._commit_seconds = INLINE_BELOW / 4
        self._write = queries("writes")
        self._read = queries("reads")
        self._keepalives: dict[str, FileLock] = {}
        self._data_version = -1
        self._jobs: queue.SimpleQueue[tuple[Batch, Callable[[Outcome], None]] | None] = queue.SimpleQueue()
        self._writer: threading.Thread | None = None
        self._readers: ThreadPoolExecutor | None = None
        self._lock: FileLock | None = None
        self._renewal: sqlite3.Connection | None = None
        self._renewal_lock: FileLock | None = None

    # Opening and closing

    async def open(self) -> None:
        if sqlite3.sqlite_version_info < OLDEST_SQLITE:
            raise StoreError(self.url, f"SQLite {sqlite3.sqlite_version} is too old; 3.38 or newer is needed")
        if self._path is not None:
            self._refuse_foreign_file()
            self._lock = FileLock(self._lock_path("write"))
        self._db = self._connect()
        self._migrate()
        self._reader = self._connect(readonly=True) if self._path is not None else self._db
        # Watching has a connection of its own: it must not wait for a long read.
        self._watcher = self._connect(readonly=True) if self._path is not None else self._db
        self.has_changed()
        if self._threads:
            self._loop = asyncio.get_running_loop()
            self._readers = ThreadPoolExecutor(1, thread_name_prefix="perdure-reader")
            self._writer = threading.Thread(target=self._write_jobs, name="perdure-writer", daemon=True)
            self._writer.start()

    async def close(self) -> None:
        if self._writer is not None:
            self._jobs.put(None)
            await asyncio.get_running_loop().run_in_executor(None, self._writer.join)
        if self._readers is not None:
            self._readers.shutdown()
        for worker_id in list(self._keepalives):
            self.let_die(worker_id)
        for connection in {self._watcher, self._reader, self._db, self._renewal}:
            if connection is not None:
                connection.close()
        for lock in (self._lock, self._renewal_lock):
            if lock is not None:
                lock.close()

    def abandon(self) -> None:
        """Let go of everything at once, as if the process had died."""
        for lock in [*self._keepalives.values(), self._lock, self._renewal_lock]:
            if lock is not None:
                lock.close()
        self._keepalives.clear()
        for connection in {self._watcher, self._reader, self._db, self._renewal}:
            if connection is not None:
                connection.close()

    def _lock_path(self, name: str) -> Path:
        assert self._path is not None
        folder = self._path.with_name(self._path.name + ".locks")
        try:
            folder.mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            raise StoreUnavailable(self.url, f"the folder {str(folder)!r} cannot be used: {error.strerror}") from None
        return folder / name

    def _refuse_foreign_file(self) -> None:
        assert self._path is not None
        if self._path.is_dir():
            raise NotADatabase(self.url, "this is a folder; name a file")
        if not self._path.parent.is_dir():
            raise NotADatabase(self.url, f"the folder {str(self._path.parent)!r} does not exist; create it first")
        if not self._path.exists():
            return
        try:
            with self._path.open("rb") as file:
                head = file.read(16)
        except OSError as error:
            raise StoreUnavailable(self.url, f"the file cannot be read: {error.strerror}") from None
        if not head:
            return
        if head != b"SQLite format 3\x00":
            raise NotADatabase(self.url, "the file is not a SQLite database; name another one, nothing was changed")
        with contextlib.closing(sqlite3.connect(f"{self._path.absolute().as_uri()}?mode=ro", uri=True)) as db:
            self._schema_version(db)

    def _connect(self, *, readonly: bool = False) -> sqlite3.Connection:
        try:
            db = sqlite3.connect(
                str(self._path) if self._path else ":memory:",
                isolation_level=None,
                check_same_thread=False,
                cached_statements=256,
            )
            db.execute(f"pragma busy_timeout = {BUSY_MS}")
            if not readonly:
                db.execute("pragma journal_mode = wal")
                db.execute("pragma synchronous = full")
            db.execute("pragma temp_store = memory")
            db.execute("pragma cache_size = -65536")
            if readonly:
                db.execute("pragma query_only = on")
        except sqlite3.Error as error:
            raise self._unavailable(error) from None
        return db

    def _migrate(self) -> None:
        """Bring the schema up to date under the write lock; refuse what is not ours or newer than we are."""
        with self._locked():
            found = self._schema_version(self._db)
            steps = migrations("sqlite")
            for number, step in enumerate(steps[found:], start=found + 1):
                self._db.executescript(
                    f"begin immediate;\n{step}\nupdate perdure_schema set version = {number};\ncommit;"
                )

    def _schema_version(self, db: sqlite3.Connection) -> int:
        """The schema the file has, 0 for none; refuses one that is not ours or newer than we are."""
        try:
            tables = {name for (name,) in db.execute("select name from sqlite_schema where type = 'table'")}
            found = db.execute("select version from perdure_schema").fetchone()[0] if "perdure_schema" in tables else 0
        except sqlite3.OperationalError as error:
            raise self._unavailable(error) from None
        except sqlite3.DatabaseError as error:
            raise NotADatabase(
                self.url, f"the file cannot be used as a database: {error}; nothing was changed"
            ) from None
        known = len(migrations("sqlite"))
        if found > known:
            raise NewerSchema(self.url, found, known)
        clash = tables & {"runs", "events", "inbox", "payloads", "attempts", "workers"}
        if clash and not found:
            names = ", ".join(sorted(clash))
            raise NotADatabase(
                self.url, f"it has tables of its own named {names}; name another file, nothing was changed"
            )
        return int(found)

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        if self._lock is not None:
            self._lock.acquire(wait=True)
        try:
            yield
        finally:
            if self._lock is not None:
                self._lock.release()

    def _unavailable(self, error: sqlite3.Error) -> StoreUnavailable:
        return StoreUnavailable(self.url, f"{error}; nothing was changed, try again")

    # Writing

    @property
    def is_inline(self) -> bool:
        """Whether the next commit is made on the caller's thread."""
        return self._writer is None or self._commit_seconds < INLINE_BELOW

    def commit(self, batch: Batch, done: Callable[[Outcome], None]) -> None:
        if self._writer is None:
            done(self._apply(batch))
            return
        if self.is_inline:
            assert self._lock is not None
            if self._lock.acquire(wait=False):
                try:
                    outcome = self._transact(batch)
                finally:
                    self._lock.release()
                done(outcome)
                return
        self._jobs.put((batch, done))

    def _write_jobs(self) -> None:
        """The writer thread: one batch after another."""
        while (job := self._jobs.get()) is not None:
            batch, done = job
            self._loop.call_soon_threadsafe(done, self._apply(batch))

    def _apply(self, batch: Batch) -> Outcome:
        """Write the batch, when the lock is ours."""
        with self._locked():
            return self._transact(batch)

    def _transact(self, batch: Batch) -> Outcome:
        db = self._db
        try:
            db.execute("begin immediate")
            if batch.worker_id is not None:
                fence = {"worker_id": batch.worker_id, "epoch": batch.epoch}
                if db.execute(self._write["fence"], fence).fetchone() is None:
                    db.execute("rollback")
                    return Fenced()
            answers = writes.apply_groups(db, batch.groups)
        except sqlite3.OperationalError as error:
            self._roll_back()
            return Failed(self._unavailable(error))
        except Exception:  # noqa: BLE001 - one group is to blame, and is found and answered below
            self._roll_back()
            return self._transact_singly(batch)
        if answers and writes.is_torn(batch.groups, answers):
            self._roll_back()
            return self._transact_singly(batch)
        return self._finish(Committed(answers))

    def _transact_singly(self, batch: Batch) -> Outcome:
        """Each group for itself, so that one that fails, or is refused half-way, harms no other."""
        try:
            self._db.execute("begin immediate")
            answers = writes.apply_groups_singly(self._db, batch.groups)
        except sqlite3.OperationalError as error:
            self._roll_back()
            return Failed(self._unavailable(error))
        return self._finish(Committed(answers))

    def _finish(self, committed: Committed) -> Outcome:
        began = elapsed()
        try:
            self._db.execute("commit")
        except sqlite3.OperationalError as error:
            self._roll_back()
            if error.sqlite_errorcode & 0xFF in _DEFINITE:
                return Failed(self._unavailable(error))
            return Unknown(StoreUnavailable(self.url, f"{error}; whether the change is on disk is not known"))
        # A moving median: a checkpoint now and then takes long and says nothing of the next commit.
        self._commit_seconds *= 1.1 if elapsed() - began > self._commit_seconds else 0.9
        return committed

    def _roll_back(self) -> None:
        # SQLite rolls back by itself on some errors, and says so when asked again.
        with contextlib.suppress(sqlite3.Error):
            self._db.execute("rollback")

    # Being alive

    def renew(self, worker_id: str, epoch: int, lease_until: int) -> bool:
        if self._path is None:
            return True
        if self._renewal is None:
            self._renewal = self._connect()
            self._renewal_lock = FileLock(self._lock_path("write"))
        assert self._renewal_lock is not None
        self._renewal_lock.acquire(wait=True)
        try:
            cursor = self._renewal.execute(
                self._write["renew_worker"],
                {"worker_id": worker_id, "epoch": epoch, "lease_until": lease_until},
            )
            return cursor.rowcount == 1
        finally:
            self._renewal_lock.release()

    def keep_alive(self, worker_id: str) -> None:
        if self._path is not None:
            lock = FileLock(self._lock_path(worker_id))
            lock.acquire(wait=True)
            self._keepalives[worker_id] = lock

    def let_die(self, worker_id: str) -> None:
        lock = self._keepalives.pop(worker_id, None)
        if lock is not None:
            lock.close(remove=True)

    def is_dead(self, worker_id: str) -> bool | None:
        if self._path is None:
            return None
        held = is_held(self._lock_path(worker_id))
        return None if held is None else not held

    def forget(self, worker_id: str) -> None:
        """Remove what a dead worker left beside the database."""
        if self._path is not None:
            self._lock_path(worker_id).unlink(missing_ok=True)

    # Reading

    async def _ask(self, question: Callable[[sqlite3.Connection], T]) -> T:
        try:
            if self._readers is None:
                return question(self._reader)
            return await asyncio.get_running_loop().run_in_executor(self._readers, question, self._reader)
        except sqlite3.OperationalError as error:
            raise self._unavailable(error) from None

    def has_changed(self) -> bool:
        (version,) = self._watcher.execute("pragma data_version").fetchone()
        changed = version != self._data_version
        self._data_version = version
        return bool(changed)

    async def load_runs(self, run_ids: Sequence[str], worker_id: str) -> list[LoadedRun]:
        return await self._ask(lambda db: [self._load(db, row) for row in self._owned(db, run_ids, worker_id)])

    def _owned(self, db: sqlite3.Connection, run_ids: Sequence[str], worker_id: str) -> list[RunRow]:
        found = self._rows(db, "owned_runs", run_ids=_json(run_ids), worker_id=worker_id)
        return sorted(found, key=lambda row: row.run_id)

    def _load(self, db: sqlite3.Connection, row: RunRow) -> LoadedRun:
        return LoadedRun(
            row,
            self._events(db, row.run_id, 1, -1),
            self._unread(db, row.run_id),
            self._attempts(db, row.run_id),
        )

    def _events(self, db: sqlite3.Connection, run_id: str, after: int, limit: int) -> list[Event]:
        found = db.execute(self._read["events"], {"run_id": run_id, "after": after, "limit": limit})
        return [rows.event_of(*row) for row in found]

    def _unread(self, db: sqlite3.Connection, run_id: str) -> list[Message]:
        return [rows.message_of(*row) for row in db.execute(self._read["unread"], {"run_id": run_id})]

    def _attempts(self, db: sqlite3.Connection, run_id: str) -> list[Attempt]:
        return [
            Attempt(place, attempt, name, rows.failure_of(failure), at, next_at)
            for place, attempt, name, failure, at, next_at in db.execute(self._read["attempts"], {"run_id": run_id})
        ]

    def _rows(self, db: sqlite3.Connection, name: str, **parameters: object) -> list[RunRow]:
        return [self._run_row(db, row) for row in _dicts(db.execute(self._read[name], parameters))]

    def _run_row(self, db: sqlite3.Connection, row: dict[str, object]) -> RunRow:
        if row["input"] is None:
            row["input"] = self._payload(db, row["run_id"], 1)
        if row["outcome"] is None and row["closed_at"] is not None:
            row["outcome"] = self._payload(db, row["run_id"], row["last_seq"])
        return msgspec.convert(row, RunRow)

    def _payload(self, db: sqlite3.Connection, run_id: object, seq: object) -> str | None:
        found = db.execute(self._read["payload"], {"run_id": run_id, "seq": seq}).fetchone()
        return found[0] if found else None

    async def owned_runs(self, worker_id: str) -> list[str]:
        query = self._read["owned_run_ids"]
        return await self._ask(lambda db: [run_id for (run_id,) in db.execute(query, {"worker_id": worker_id})])

    async def new_messages(self, worker_id: str, after: int) -> tuple[list[tuple[str, Message]], int]:
        def look(db: sqlite3.Connection) -> tuple[list[tuple[str, Message]], int]:
            (last,) = db.execute(self._read["last_message"]).fetchone()
            parameters = {"worker_id": worker_id, "after": after, "last": last}
            found = db.execute(self._read["new_messages"], parameters)
            return [(row[0], rows.message_of(*row[1:])) for row in found], last

        return await self._ask(look)

    async def last_message(self) -> int:
        (number,) = await self._ask(lambda db: db.execute(self._read["last_message"]).fetchone())
        return int(number)

    async def next_wake(self, namespace: str, queues: Sequence[str], workflows: Sequence[str]) -> int | None:
        parameters = {"namespace": namespace, "queues": _json(queues), "workflows": _json(workflows)}
        (at,) = await self._ask(lambda db: db.execute(self._read["next_wake"], parameters).fetchone())
        return None if at is None else int(at)

    async def run(self, namespace: str, run_id: str) -> RunRow | None:
        found = await self._ask(lambda db: self._rows(db, "run", namespace=namespace, run_id=run_id))
        return found[0] if found else None

    async def latest_run(self, namespace: str, workflow_id: str) -> RunRow | None:
        found = await self._ask(lambda db: self._rows(db, "latest_run", namespace=namespace, workflow_id=workflow_id))
        return found[0] if found else None

    async def list_runs(self, wanted: RunFilter) -> list[RunRow]:
        sql, parameters = writes.listing(wanted)
        return await self._ask(lambda db: [self._run_row(db, row) for row in _dicts(db.execute(sql, parameters))])

    async def closed_among(self, run_ids: Sequence[str]) -> list[RunRow]:
        return await self._ask(lambda db: self._rows(db, "closed_among", run_ids=_json(run_ids)))

    async def events(self, row: RunRow, after: int, limit: int) -> list[Event]:
        found = await self._ask(lambda db: self._events(db, row.run_id, after, limit))
        if after < 1:
            found.insert(0, rows.first_event(row))
        closing = rows.closing_event(row)
        if closing is not None and closing.seq > after and len(found) < limit:
            found.append(closing)
        return found[:limit]

    async def last_event_at(self, run_id: str) -> int | None:
        found = await self._ask(lambda db: db.execute(self._read["last_event"], {"run_id": run_id}).fetchone())
        return None if found is None else int(found[1])

    async def attempts(self, run_id: str) -> list[Attempt]:
        return await self._ask(lambda db: self._attempts(db, run_id))

    async def unread(self, run_id: str) -> list[Message]:
        return await self._ask(lambda db: self._unread(db, run_id))

    async def workers(self) -> list[WorkerRow]:
        query = self._read["workers"]
        return await self._ask(lambda db: [msgspec.convert(row, WorkerRow) for row in _dicts(db.execute(query))])


def _json(values: Sequence[str]) -> str:
    return msgspec.json.encode(values).decode()


def _dicts(cursor: sqlite3.Cursor) -> list[dict[str, object]]:
    names = [column[0] for column in cursor.description]
    return [dict(zip(names, row, strict=True)) for row in cursor]


def has_runs(path: Path) -> bool:
    """Whether opening this file leaves it as it is: a database that is not ours would get our tables."""
    try:
        with contextlib.closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as db:
            return db.execute("select 1 from sqlite_schema where name = 'perdure_schema'").fetchone() is not None
    except sqlite3.Error:
        # open() knows better what is wrong with it, and changes nothing.
        return True
