"""What the SQLite store reads, from a connection of its own, so that no read waits for a write."""

import sqlite3
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeGuard, TypeVar, cast

import msgspec

from perdure.errors import StoreUnavailable
from perdure.kernel.events import Event
from perdure.kernel.messages import Message
from perdure.stores import rows
from perdure.stores.queries import listing, queries
from perdure.stores.records import Attempt, LoadedRun, RunFilter, RunRow, WorkerRow
from perdure.threads import Threads

T = TypeVar("T")


def is_about_file(error: Exception) -> TypeGuard[sqlite3.DatabaseError]:
    """Whether the file is to blame, and not what was asked: it cannot be read or written now, or is damaged."""
    return isinstance(error, sqlite3.OperationalError) or type(error) is sqlite3.DatabaseError


class SqliteReads:
    """The reading half of the store; on a thread of its own where there are threads."""

    url: str
    _reader: sqlite3.Connection
    _readers: Threads | None = None

    def __init__(self) -> None:
        self._read = queries("reads")

    async def _ask(self, question: Callable[[sqlite3.Connection], T]) -> T:
        try:
            if self._readers is None:
                return question(self._reader)
            return cast("T", await self._readers.run(partial(question, self._reader)))
        except sqlite3.DatabaseError as error:
            if not is_about_file(error):
                raise
            raise self._unavailable(error) from None

    def _unavailable(self, error: sqlite3.Error) -> StoreUnavailable:
        if type(error) is sqlite3.DatabaseError:
            return StoreUnavailable(self.url, f"the file is damaged: {error}; restore a backup of it")
        return StoreUnavailable(self.url, f"{error}; nothing was changed, try again")

    async def load_runs(self, run_ids: Sequence[str], worker_id: str) -> list[LoadedRun]:
        def load(db: sqlite3.Connection) -> list[LoadedRun]:
            owned = self._owned(db, run_ids, worker_id)
            children: dict[str, set[str]] = {}
            for parent_id, run_id in db.execute(
                self._read["children_of"], {"run_ids": _json([r.run_id for r in owned])}
            ):
                children.setdefault(parent_id, set()).add(run_id)
            return [self._load(db, row, frozenset(children.get(row.run_id, ()))) for row in owned]

        return await self._ask(load)

    def _owned(self, db: sqlite3.Connection, run_ids: Sequence[str], worker_id: str) -> list[RunRow]:
        found = run_rows(db, "owned_runs", run_ids=_json(run_ids), worker_id=worker_id)
        return sorted(found, key=lambda row: (-row.priority, row.run_id))

    def _load(self, db: sqlite3.Connection, row: RunRow, children: frozenset[str]) -> LoadedRun:
        return LoadedRun(
            row,
            self._events(db, row.run_id, 1, -1),
            self._unread(db, row.run_id),
            self._attempts(db, row.run_id),
            children,
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

    async def next_wake(
        self, namespace: str, queues: Sequence[str], workflows: Sequence[str], *, suspects: bool = False
    ) -> int | None:
        known = {"namespace": namespace, "workflows": _json(workflows)}

        def look(db: sqlite3.Connection) -> list[int | None]:
            levels = [{"queue": queue, "priority": priority} for queue, priority in ripe_levels(db, queues)]
            found = [at for level in levels for (at,) in db.execute(self._read["next_wake"], known | level)]
            for queue in queues if suspects else ():
                found += db.execute(self._read["next_suspect"], known | {"queue": queue}).fetchone()
            return found

        return min((at for at in await self._ask(look) if at is not None), default=None)

    async def run(self, namespace: str, run_id: str) -> RunRow | None:
        found = await self._ask(lambda db: run_rows(db, "run", namespace=namespace, run_id=run_id))
        return found[0] if found else None

    async def latest_run(self, namespace: str, workflow_id: str) -> RunRow | None:
        found = await self._ask(lambda db: run_rows(db, "latest_run", namespace=namespace, workflow_id=workflow_id))
        return found[0] if found else None

    async def list_runs(self, wanted: RunFilter) -> list[RunRow]:
        sql, parameters = listing(wanted)
        return await self._ask(lambda db: _run_rows(db, db.execute(sql, parameters)))

    async def overdue(self, namespace: str, now: int, limit: int) -> list[RunRow]:
        return await self._ask(lambda db: run_rows(db, "overdue", namespace=namespace, now=now, limit=limit))

    async def closed_among(self, run_ids: Sequence[str]) -> list[RunRow]:
        return await self._ask(lambda db: run_rows(db, "closed_among", run_ids=_json(run_ids)))

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


def ripe_levels(db: sqlite3.Connection, queues: Sequence[str]) -> list[tuple[str, int]]:
    """The queues and priorities that have free runs with a time to wake at."""
    sql = queries("reads")["ripe_levels"]
    return [(queue, priority) for queue in queues for (priority,) in db.execute(sql, {"queue": queue})]


def run_rows(db: sqlite3.Connection, name: str, **parameters: object) -> list[RunRow]:
    """The runs a named query finds, with what is too large for their rows."""
    return _run_rows(db, db.execute(queries("reads")[name], parameters))


def _run_rows(db: sqlite3.Connection, cursor: sqlite3.Cursor) -> list[RunRow]:
    found = _dicts(cursor)
    for row in found:
        if row["input"] is None:
            row["input"] = _payload(db, row["run_id"], 1)
        if row["outcome"] is None and row["closed_at"] is not None:
            row["outcome"] = _payload(db, row["run_id"], row["last_seq"])
    return msgspec.convert(found, list[RunRow])


def _payload(db: sqlite3.Connection, run_id: object, seq: object) -> str | None:
    found = db.execute(queries("reads")["payload"], {"run_id": run_id, "seq": seq}).fetchone()
    return found[0] if found else None
