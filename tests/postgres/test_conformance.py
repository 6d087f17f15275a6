"""Stores answer alike: what is drawn at random is written to Postgres and to the tables in memory, and compared.

The tables in memory are held against SQLite elsewhere; there what is ripe at once takes turns, here it has a time.
"""

import asyncio
from collections.abc import Sequence
from typing import Any

import asyncpg
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.stores.answers import Applied, Committed, Outcome, Posted, StoppedChild
from perdure.stores.operations import Batch, Operation, TakeMessage
from perdure.stores.port import Store
from perdure.stores.postgres.executor import answer
from perdure.stores.postgres.store import PostgresStore
from perdure.stores.queries import VERSION, tables
from perdure.stores.records import WorkerRow
from perdure.stores.rules.questions import Text
from perdure.stores.rules.run_rows import quick_rows
from tests.simulation.memory import MemoryStore, Tables
from tests.test_store_conformance import (
    BEGIN,
    KEYS_DUMP,
    LETTERS_DUMP,
    OUTBOX_DUMP,
    QUICK,
    SINKS_DUMP,
    comparable,
    histories,
    looked_at,
    losses,
    memory_dump,
    tellings,
)

# Quicker than to truncate them.
EMPTY = "; ".join(
    [
        *(f"delete from {table}" for table in tables("postgres") if table != VERSION),
        "alter sequence inbox_number_seq restart",
        "alter sequence outbox_n_seq restart",
    ]
)
DUMP = {
    "latest": "select namespace, workflow_id, run_id from runs where is_latest order by 1, 2",
    "events": "select e.namespace, e.run_id, e.seq, e.kind, e.place, e.at, coalesce(e.body, p.body)"
    " from events e left join payloads p on p.run_id = e.run_id and p.seq = e.seq order by e.run_id, e.seq",
    "inbox": "select number, namespace, run_id, message_id, kind, body, at, taken_by, answer"
    " from inbox order by number",
    "attempts": "select namespace, run_id, place, attempt, name, failure, at, next_at from attempts order by 2, 3, 4",
    "progress": "select namespace, run_id, place, begun_at, details, beat_at from progress order by 2, 3",
    "snapshots": "select run_id, namespace, seq, at, body from snapshots order by 1",
    "stream_heads": "select run_id, namespace, name, source, n, own, attempt from stream_heads order by 1, 3, 4",
    "streams": "select run_id, namespace, name, n, attempt, at, body from streams order by 1, 3, 4",
    "deaths": "select run_id, deaths from runs where deaths is not null order by 1",
    "judged": "select worker_id, judged_at from workers where judged_at is not null order by 1",
    "namespaces": "select namespace from namespaces order by 1",
    "schedules": "select schedule_id, namespace, name, revision, source, next_at, waits, body, 0"
    " from schedules order by 1",
    "schedule_decisions": "select schedule_id, slot, number, time, kind, times, run_id"
    " from schedule_decisions order by 1, 2",
    "duties": "select namespace, name, holder, since, last_ok_at, last_error from duties order by 1, 2",
    "attempt_deadlines": "select run_id, namespace, worker_id, attempt, begun_at, ends_at, heartbeat_ms, due_at"
    " from attempt_deadlines order by 1",
    "workers": f"select {', '.join(WorkerRow.__struct_fields__)} from workers order by worker_id",
    "idempotency_keys": KEYS_DUMP,
    "sinks": SINKS_DUMP,
    "outbox": OUTBOX_DUMP,
    "dead_letters": LETTERS_DUMP,
    "listeners": "select name, until, since, later, later_at from listeners order by 1",
    "changes": "select distinct run_id from changes order by 1",
}


class Bench:
    """A schema that is emptied before each history, and a loop that outlives them."""

    def __init__(self, url: str) -> None:
        self._runner = asyncio.Runner()
        self.store = PostgresStore(url)
        self._schema = self.store.address.schema
        self._runner.run(self._open())

    async def _open(self) -> None:
        await self.store.open()
        self._db = await asyncpg.connect(self.store.address.dsn, server_settings={"search_path": self._schema})

    def compare(self, history: Sequence[Batch]) -> None:
        self._runner.run(self._compare(history))

    async def _compare(self, history: Sequence[Batch]) -> None:
        await self._db.execute(EMPTY)
        memory = MemoryStore(Tables())
        for drawn in [BEGIN, *history]:
            batch = sensible(drawn, memory.tables.last_number)
            ours, theirs = await told(self.store, batch), comparable(await told(memory, batch))
            numbers = await self._renumber(memory.tables)
            assert comparable(numbered(ours, numbers)) == theirs
        assert await self._dump() == memory_dump(memory.tables)
        assert await looked_at(self.store, by_number=False) == await looked_at(memory, by_number=False)

    async def _renumber(self, others: Tables) -> dict[int, int]:
        """Give messages the numbers they have elsewhere: a sequence does not give back what was not used.

        Answers which number became which, as far as there are as many of them.
        """
        ours = [number for (number,) in await self._db.fetch("select number from inbox order by number")]
        numbers = dict(zip(ours, sorted(others.inbox.rows), strict=False))
        for number, other in numbers.items():
            if number != other:
                await self._db.execute("update inbox set number = $2 where number = $1", number, other)
        await self._db.execute("select setval('inbox_number_seq', $1, false)", others.last_number + 1)
        return numbers

    async def _dump(self) -> dict[str, Sequence[object]]:
        rows = Text("select * from runs order by run_id", {})
        dump: dict[str, Sequence[object]] = {"runs": await answer(self._db, self._schema, quick_rows(rows))}
        for name, sql in DUMP.items():
            dump[name] = [tuple(row) for row in await self._db.fetch(sql)]
        return dump

    def close(self) -> None:
        self._runner.run(self._db.close())
        self._runner.run(self.store.close())
        self._runner.close()


def sensible(batch: Batch, last_number: int) -> Batch:
    """A batch that takes each message once, and none by a number that nobody has yet: no owner does that."""
    known = {*range(last_number + 1)}

    def once(operation: Operation) -> Operation:
        if isinstance(operation, TakeMessage):
            if operation.number not in known:
                return operation._replace(number=0)
            known.discard(operation.number)
        return operation

    return batch._replace(groups=[[once(operation) for operation in group] for group in batch.groups])


def numbered(outcome: Outcome, numbers: dict[int, int]) -> Outcome:
    """An outcome with other numbers for its messages."""
    if not isinstance(outcome, Committed):
        return outcome
    answers: dict[int, Any] = dict(outcome.answers)
    for index, found in outcome.answers.items():
        if isinstance(found, Applied):
            answers[index] = Applied(_numbered(found.value, numbers))
    return Committed(answers)


def _numbered(value: object, numbers: dict[int, int]) -> object:
    if isinstance(value, list):
        return [_numbered(each, numbers) for each in value]
    if isinstance(value, Posted | StoppedChild):
        return msgspec.structs.replace(value, number=numbers.get(value.number, value.number))
    return value


async def told(store: Store, batch: Batch) -> Outcome:
    outcome: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
    store.commit(batch, outcome.set_result)
    return await outcome


def check(url: str, examples: int, drawn: st.SearchStrategy[list[Batch]]) -> None:
    bench = Bench(url)
    try:

        @settings(QUICK, max_examples=examples)
        @given(drawn)
        def alike(history: list[Batch]) -> None:
            bench.compare(history)

        alike()
    finally:
        bench.close()


def test_postgres_answers_as_the_store_in_memory_does(postgres_url: str) -> None:
    """A simulation is worth as much as its database is like a real one."""
    check(postgres_url, 60, histories | losses)


def test_postgres_tells_sinks_what_the_store_in_memory_does(postgres_url: str) -> None:
    """What sinks are told is written by the function that writes a batch, too."""
    check(postgres_url, 20, tellings)


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_postgres_answers_as_the_store_in_memory_does_for_long(postgres_url: str) -> None:
    check(postgres_url, 3000, histories | losses | tellings)
