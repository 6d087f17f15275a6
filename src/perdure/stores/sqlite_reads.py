"""What the SQLite store reads, from a connection of its own, so that no read waits for a write."""

import sqlite3
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeGuard, TypeVar, cast

import msgspec

from perdure.errors import RunUnreadable, StoreUnavailable
from perdure.kernel.events import Event
from perdure.kernel.messages import Message
from perdure.stores import rows
from perdure.stores.queries import listing, queries
from perdure.stores.records import Attempt, LoadedRun, NewMessage, RunFilter, RunRow, WorkerRow
from perdure.stores.rows import Garbled
from perdure.stores.sqlite_garbled import ask, is_undecodable, misfit, run_row, worker_row
from perdure.threads import Threads

T = TypeVar("T")

# What is asked for that has an index of its own.
LEADING = ("workflow", "entity_id", "correlation_id", "parent_id")
# So many runs are sorted in no time.
FEW_TO_SORT = 5000


def is_about_file(error: Exception) -> TypeGuard[sqlite3.DatabaseError]:
    """Whether the file is to blame, and not a row or what was asked: it cannot be used now, or is damaged."""
    is_about_it = isinstance(error, sqlite3.OperationalError) or type(error) is sqlite3.DatabaseError
    return is_about_it and not is_undecodable(error)


class SqliteReads:
    """The reading half of the store; on a thread of its own where there are threads."""

    url: str
    _reader: sqlite3.Connection
    _readers: Threads | None = None

    def __init__(self) -> None:
        self._read = queries("reads")

    async def _ask(
        self,
        question: Callable[[sqlite3.Connection], T],
        slowly: Callable[[sqlite3.Connection], T] | None = None,
    ) -> T:
        """Ask; when the answer cannot be read, another way, or the same once more to learn what is wrong."""
        asked = partial(ask, self._reader, question, slowly or question)
        try:
            if self._readers is None:
                return asked()
            return cast("T", await self._readers.run(asked))
        except sqlite3.DatabaseError as error:
            if not is_about_file(error):
                raise
            raise self._unavailable(error) from None

    def _unavailable(self, error: sqlite3.Error) -> StoreUnavailable:
        if type(error) is sqlite3.DatabaseError:
            return StoreUnavailable(self.url, f"the file is damaged: {error}; restore a backup of it")
        return StoreUnavailable(self.url, f"{error}; nothing was changed, try again")

    def _unreadable(self, run_id: str, id: object, error: Garbled) -> RunUnreadable:
        return RunUnreadable(self.url, run_id, id if isinstance(id, str) else run_id, str(error))

    async def _ask_of(self, run_id: str, id: str, question: Callable[[sqlite3.Connection], T]) -> T:
        """Ask about one run; RunUnreadable."""
        try:
            return await self._ask(question)
        except Garbled as error:
            raise self._unreadable(run_id, id, error) from None

    async def load_runs(self, run_ids: Sequence[str], worker_id: str) -> list[LoadedRun | RunUnreadable]:
        def load(db: sqlite3.Connection) -> list[LoadedRun | RunUnreadable]:
            return [*self._load_all(db, run_ids, worker_id)]

        def load_singly(db: sqlite3.Connection) -> list[LoadedRun | RunUnreadable]:
            found: list[LoadedRun] = []
            unreadable: list[RunUnreadable] = []
            for run_id in run_ids:
                try:
                    found += self._load_all(db, [run_id], worker_id)
                except Garbled as error:
                    (id,) = db.execute(self._read["workflow_id"], {"run_id": run_id}).fetchone()
                    unreadable.append(self._unreadable(run_id, id, error))
            return [*sorted(found, key=lambda each: _by_priority(each.row)), *unreadable]

        return await self._ask(load, load_singly)

    def _load_all(self, db: sqlite3.Connection, run_ids: Sequence[str], worker_id: str) -> list[LoadedRun]:
        owned = self._owned(db, run_ids, worker_id)
        children: dict[str, set[str]] = {}
        for parent_id, run_id in db.execute(self._read["children_of"], {"run_ids": _json([r.run_id for r in owned])}):
            if type(run_id) is not str:
                raise Garbled(f"one of its children has the id {run_id!r}, which is no text")
            children.setdefault(parent_id, set()).add(run_id)
        return [self._load(db, row, frozenset(children.get(row.run_id, ()))) for row in owned]

    def _owned(self, db: sqlite3.Connection, run_ids: Sequence[str], worker_id: str) -> list[RunRow]:
        found = run_rows(db, "owned_runs", run_ids=_json(run_ids), worker_id=worker_id)
        return sorted(found, key=_by_priority)

    def _load(self, db: sqlite3.Connection, row: RunRow, children: frozenset[str]) -> LoadedRun:
        rows.check_start(row)
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
        return [rows.attempt_of(*row) for row in db.execute(self._read["attempts"], {"run_id": run_id})]

    async def owned_runs(self, worker_id: str) -> list[str]:
        query = self._read["owned_run_ids"]
        found = await self._ask(lambda db: db.execute(query, {"worker_id": worker_id}).fetchall())
        # One whose id is no text could not be asked for.
        return [run_id for (run_id,) in found if type(run_id) is str]

    async def new_messages(self, worker_id: str, after: int) -> tuple[list[NewMessage], int]:
        def look(db: sqlite3.Connection, read: Callable[..., Message | RunUnreadable]) -> tuple[list[NewMessage], int]:
            (last,) = db.execute(self._read["last_message"]).fetchone()
            found = db.execute(self._read["new_messages"], {"worker_id": worker_id, "after": after}).fetchall()
            news = [NewMessage(run_id, read(run_id, *row), had) for run_id, had, *row in found]
            return news, max([last, *(row[2] for row in found)])

        quickly = partial(look, read=lambda _, *row: rows.message_of(*row))
        return await self._ask(quickly, partial(look, read=self._message_or_not))

    def _message_or_not(self, run_id: str, *row: Any) -> Message | RunUnreadable:
        try:
            return rows.message_of(*row)
        except Garbled as error:
            return self._unreadable(run_id, None, error)

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

        # A time that is no number never comes.
        return min((at for at in await self._ask(look) if type(at) is int), default=None)

    async def run(self, namespace: str, run_id: str) -> RunRow | None:
        return _only(await self._runs(queries("reads")["run"], {"namespace": namespace, "run_id": run_id}))

    async def latest_run(self, namespace: str, workflow_id: str) -> RunRow | None:
        return _only(
            await self._runs(queries("reads")["latest_run"], {"namespace": namespace, "workflow_id": workflow_id})
        )

    async def list_runs(self, wanted: RunFilter) -> list[RunRow | RunUnreadable]:
        return await self._runs(*listing(wanted, walks=await self._is_best_walked(wanted)))

    async def _is_best_walked(self, wanted: RunFilter) -> bool:
        """Whether nothing that is asked for leads to the runs by an index, and there are many."""
        if (wanted.held and not wanted.status) or any(getattr(wanted, column) is not None for column in LEADING):
            return False
        sought = {"namespace": wanted.namespace, "most": FEW_TO_SORT}
        (count,) = await self._ask(lambda db: db.execute(self._read["some_of_namespace"], sought).fetchone())
        return bool(count == FEW_TO_SORT)

    async def held_counts(self, namespace: str) -> dict[str, int]:
        query = self._read["held_counts"]
        return await self._ask(lambda db: dict(db.execute(query, {"namespace": namespace}).fetchall()))

    async def overdue(self, namespace: str, now: int, limit: int) -> list[RunRow]:
        sought = {"namespace": namespace, "now": now, "limit": limit}
        found = await self._runs(queries("reads")["overdue"], sought, sought | {"limit": -1})
        return [row for row in found if isinstance(row, RunRow)][:limit]

    async def ended_or_held(self, run_ids: Sequence[str]) -> list[RunRow | RunUnreadable]:
        return await self._runs(queries("reads")["ended_or_held"], {"run_ids": _json(run_ids)})

    async def _runs(
        self, sql: str, sought: dict[str, object], sought_slowly: dict[str, object] | None = None
    ) -> list[RunRow | RunUnreadable]:
        """The runs a query finds, those that cannot be read as such."""

        def look(db: sqlite3.Connection) -> list[RunRow | RunUnreadable]:
            return [*_run_rows(db, db.execute(sql, sought))]

        def look_at_each(db: sqlite3.Connection) -> list[RunRow | RunUnreadable]:
            found = _whole_rows(db, db.execute(sql, sought_slowly or sought))
            return [run_row(self.url, columns) for columns in found]

        return await self._ask(look, look_at_each)

    async def events(self, row: RunRow, after: int, limit: int) -> list[Event]:
        found = await self._ask_of(
            row.run_id, row.workflow_id, lambda db: self._events(db, row.run_id, after, limit - (after < 1))
        )
        try:
            if after < 1:
                found.insert(0, rows.first_event(row))
            closing = rows.closing_event(row) if len(found) < limit else None
        except Garbled as error:
            raise self._unreadable(row.run_id, row.workflow_id, error) from None
        if closing is not None and closing.seq > after:
            found.append(closing)
        return found[:limit]

    async def last_event_at(self, run_id: str) -> int | None:
        found = await self._ask(lambda db: db.execute(self._read["last_event"], {"run_id": run_id}).fetchone())
        return found[1] if found is not None and type(found[1]) is int else None

    async def attempts(self, run_id: str) -> list[Attempt]:
        return await self._ask_of(run_id, run_id, lambda db: self._attempts(db, run_id))

    async def unread(self, run_id: str) -> list[Message]:
        return await self._ask_of(run_id, run_id, lambda db: self._unread(db, run_id))

    async def set_aside(self, run_id: str) -> list[Message]:
        sql = self._read["set_aside"]
        return await self._ask_of(
            run_id, run_id, lambda db: [rows.message_of(*row) for row in db.execute(sql, {"run_id": run_id})]
        )

    async def owners(self) -> list[object]:
        return await self._ask(lambda db: [owner for (owner,) in db.execute(self._read["owners"])])

    async def workers(self) -> list[WorkerRow]:
        query = self._read["workers"]

        def look(db: sqlite3.Connection) -> list[WorkerRow]:
            try:
                return msgspec.convert(_dicts(db.execute(query)), list[WorkerRow])
            except msgspec.ValidationError as error:
                raise Garbled(str(error)) from None

        def look_at_each(db: sqlite3.Connection) -> list[WorkerRow]:
            found = [worker_row(columns) for columns in _dicts(db.execute(query))]
            return [worker for worker in found if worker is not None]

        return await self._ask(look, look_at_each)


def _by_priority(row: RunRow) -> tuple[int, str]:
    return -row.priority, row.run_id


def _only(found: list[RunRow | RunUnreadable]) -> RunRow | None:
    """The one that was found, if there is one; RunUnreadable."""
    if not found:
        return None
    if isinstance(found[0], RunUnreadable):
        raise found[0]
    return found[0]


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
    """The runs a named query finds, with what is too large for their rows; Garbled."""
    sql = queries("reads")[name]

    def blame(db: sqlite3.Connection) -> list[RunRow]:
        found = [run_row("", columns) for columns in _whole_rows(db, db.execute(sql, parameters))]
        for each in found:
            if isinstance(each, RunUnreadable):
                raise Garbled(f"run {each.id!r} cannot be read: {each.trouble}")
        return [each for each in found if isinstance(each, RunRow)]

    return ask(db, lambda db: _run_rows(db, db.execute(sql, parameters)), blame)


def _run_rows(db: sqlite3.Connection, cursor: sqlite3.Cursor) -> list[RunRow]:
    found = _whole_rows(db, cursor)
    try:
        return msgspec.convert(found, list[RunRow])
    except msgspec.ValidationError as error:
        raise Garbled(misfit(error)) from None


def _whole_rows(db: sqlite3.Connection, cursor: sqlite3.Cursor) -> list[dict[str, object]]:
    """Rows of runs, by column, with what is too large for them."""
    found = _dicts(cursor)
    for row in found:
        if row["input"] is None:
            row["input"] = _payload(db, row["run_id"], 1)
        if row["outcome"] is None and row["closed_at"] is not None:
            row["outcome"] = _payload(db, row["run_id"], row["last_seq"])
    return found


def _payload(db: sqlite3.Connection, run_id: object, seq: object) -> str | None:
    found = db.execute(queries("reads")["payload"], {"run_id": run_id, "seq": seq}).fetchone()
    return found[0] if found else None
