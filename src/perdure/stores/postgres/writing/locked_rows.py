"""Stuck: what somebody outside holds in a transaction of their own, so that we cannot write it now.

In:   the groups of a batch, after one of its statements waited too long for a lock.
Out:  which of them are to blame, and who holds what they need; all others are written without them.

A person who looks at a run with `select … for update` and goes for lunch stalls that run, and nothing else.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple, TypeAlias

from perdure.clock import elapsed
from perdure.stores.answers import Busy
from perdure.stores.dialects import prepare, prepared, quoted
from perdure.stores.operations import InsertRichRun, InsertRun, Operation
from perdure.stores.postgres.connections import Connection
from perdure.stores.rules.batch import touched_runs

# How often it is looked whether a row is free again; and an id that somebody is about to take, which takes longer.
LOOK_SECONDS, LOOK_AT_ID_SECONDS = 0.02, 0.25

FREE = """
select run_id
  from runs
 where run_id = any(:run_ids::text[])
   for no key update skip locked"""
THERE = "select run_id, workflow_id from runs where run_id = any(:run_ids::text[])"

# A savepoint that was released left a number in the row that nobody knows any more; then it is one of those that
# have changed rows and are still open.
WRITERS = """
select distinct holder.pid::text || coalesce(' (' || nullif(holder.application_name, '') || ')', ''),
       extract(epoch from now() - holder.xact_start)::bigint
  from pg_locks as held
  join pg_stat_activity as holder on holder.pid = held.pid
 where held.locktype = 'relation'
   and held.relation = cast(:table as regclass)
   and held.mode = 'RowExclusiveLock'
   and held.granted
   and held.pid <> pg_backend_pid()
   and coalesce(holder.state, 'idle in transaction') like 'idle in transaction%'"""

Groups: TypeAlias = Sequence[Sequence[Operation]]


class Start(NamedTuple):
    """An id that a run is to be started under."""

    namespace: str
    workflow_id: str


class ChangeOf(NamedTuple):
    """What a group does of which it is not known what it waits for: by the run it is about, or by its kind."""

    name: str


# The row of a run, or what is to be tried again for itself.
Key: TypeAlias = str | Start | ChangeOf


def keys_of(group: Sequence[Operation]) -> set[Key]:
    """What a group may have to wait for."""
    runs = touched_runs(group)
    starts = {Start(op.namespace, op.workflow_id) for op in group if isinstance(op, InsertRun | InsertRichRun)}
    if starts:
        return {*runs, *starts}
    return {*runs, *(ChangeOf(run_id) for run_id in runs or {type(op).__name__ for op in group})}


class Stuck:
    """The keys that were last seen to be held, who holds them, and when to look again."""

    def __init__(self, schema: str) -> None:
        self._schema = schema
        self._look_at: dict[Key, float] = {}
        self._trouble: dict[Key, str] = {}

    def __bool__(self) -> bool:
        return bool(self._look_at)

    def among(self, groups: Groups) -> dict[int, Busy]:
        """The groups that need one of them."""
        found = {}
        for index, group in enumerate(groups):
            if held := next(iter(keys_of(group) & self._look_at.keys()), None):
                found[index] = Busy(self._trouble[held])
        return found

    async def look(self, connection: Connection, groups: Groups) -> set[Key]:
        """Forget rows that are free by now; answers what of these groups is to be tried again, each for itself."""
        now = elapsed()
        due = [key for key, at in self._look_at.items() if at <= now]
        if rows := [key for key in due if isinstance(key, str)]:
            held = await self._held(connection, rows)
            for row in rows:
                if row in held:
                    self._look_at[row] = now + LOOK_SECONDS
                else:
                    self.forget([row])
        again: set[Key] = {key for key in due if not isinstance(key, str)}
        wanted = {key for group in groups for key in keys_of(group)} if again else set()
        # Who wanted the others has given up.
        self.forget(again - wanted)
        return again & wanted

    async def find(self, connection: Connection, groups: Groups) -> bool:
        """Note which rows of these groups somebody holds just now; whether there are any."""
        run_ids = sorted({run_id for group in groups for run_id in touched_runs(group)})
        if held := await self._held(connection, run_ids):
            trouble = await self._told(connection, sorted(held))
            for run_id in held:
                self.note(run_id, trouble, LOOK_SECONDS)
        return bool(held)

    def note(self, key: Key, trouble: str, seconds: float) -> None:
        self._look_at[key] = elapsed() + seconds
        self._trouble[key] = trouble

    def forget(self, keys: Iterable[Key]) -> None:
        for key in keys:
            self._look_at.pop(key, None)
            self._trouble.pop(key, None)

    async def _held(self, connection: Connection, run_ids: list[str]) -> set[str]:
        free = {run_id for (run_id,) in await connection.fetch(prepare(FREE, self._schema).sql, run_ids)}
        return {run_id for run_id, _ in await self._there(connection, run_ids) if run_id not in free}

    async def _there(self, connection: Connection, run_ids: list[str]) -> list[tuple[str, str]]:
        """Those of these runs that there are, and what people call them."""
        return [tuple(row) for row in await connection.fetch(prepare(THERE, self._schema).sql, run_ids)]

    async def _told(self, connection: Connection, run_ids: list[str]) -> str:
        holders = await connection.fetch(prepared("row_holders", self._schema).sql, run_ids)
        if not holders:
            writers = prepare(WRITERS, self._schema).sql
            holders = await connection.fetch(writers, f"{quoted(self._schema)}.runs")
        ((_, name),) = await self._there(connection, run_ids[:1])
        # Since when is told only of transactions of the own role, or to those who may read statistics.
        named = [f"process {name}" + ("" if since is None else f", for {since} s") for name, since in holders]
        who = " or ".join(named) or "another transaction"
        return (
            f"{who} holds the row of run {name!r} in an open transaction, so that it cannot be written; "
            "commit it, or end it there; nothing was changed"
        )
