"""Transactions of several processes that meet, in the order that hurts."""

import asyncio
import os
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import pytest

from perdure import Perdure, Signal, Status, workflow
from perdure.kernel.forking import Kept
from perdure.stores.answers import (
    Applied,
    Busy,
    Committed,
    Fenced,
    Freed,
    KeptKey,
    Moved,
    Outcome,
    Paused,
    Posted,
    Remaining,
    Taken,
)
from perdure.stores.operations import (
    Batch,
    ClaimRuns,
    DeleteNamespace,
    DeleteWorker,
    FreeMismatches,
    FreeRuns,
    HoldRun,
    Operation,
    RaiseEpoch,
    RegisterWorker,
    TakeKey,
)
from perdure.stores.postgres.address import address_of
from perdure.stores.postgres.store import PostgresStore
from perdure.stores.rules.reads import Reads
from tests.postgres.test_conformance import told
from tests.test_store_contract import a_message, a_ripe_run, a_run, an_end, an_event
from tests.test_store_forks import a_retry

CLAIMERS, RUNS, BITE = 16, 1600, 7
MANY_RUNS, MANY_BITE = int(os.environ.get("TASKS") or 100_000), 50
WRITTEN_AT_ONCE = 1000

answer = Signal("answer", int)


@workflow
async def waits_to_be_answered() -> int:
    return await answer.receive()


@asynccontextmanager
async def several(url: str, count: int) -> AsyncIterator[list[PostgresStore]]:
    """So many processes' ways to one schema, each with a worker that is registered."""
    stores = [PostgresStore(url) for _ in range(count)]
    for number, store in enumerate(stores):
        await store.open()
        register = RegisterWorker(f"w-{number}", "main", 99_000, ("default",), "host", number, 1000)
        assert isinstance(await told(store, Batch([[register]], None, 0)), Committed)
    try:
        yield stores
    finally:
        for store in stores:
            await store.close()


@asynccontextmanager
async def holding(url: str, sql: str, *parameters: object) -> AsyncIterator[None]:
    """A transaction that holds what this statement locks."""
    address = address_of(url)
    db = await asyncpg.connect(address.dsn, server_settings={"search_path": address.schema})
    transaction = db.transaction()
    await transaction.start()
    await db.execute(sql, *parameters)
    try:
        yield
    finally:
        await transaction.commit()
        await db.close()


# Whoever inserts such a row stops in the middle of its transaction until there is a row in the table `gate`.
GATE = """
create table gate (opened boolean);
create function wait_at_gate() returns trigger language plpgsql set search_path from current as $$
begin
    perform pg_advisory_xact_lock(tg_relid::bigint);
    while not exists (select 1 from gate) loop
        perform pg_sleep(0.005);
    end loop;
    return null;
end $$;
create trigger stops after insert on {table} for each row when ({which}) execute function wait_at_gate()"""
IS_AT_GATE = "select 1 from pg_locks where locktype = 'advisory' and objid = '{table}'::regclass"


@asynccontextmanager
async def stopped_at(
    url: str, table: str, which: str, store: PostgresStore, batch: Batch
) -> AsyncIterator["asyncio.Future[Outcome]"]:
    """A batch that stops inside its transaction, when it inserts such a row; it goes on when this is left."""
    address = address_of(url)
    db = await asyncpg.connect(address.dsn, server_settings={"search_path": address.schema})
    await db.execute(GATE.format(table=table, which=which))
    under_way = asyncio.ensure_future(told(store, batch))
    try:
        while await db.fetchval(IS_AT_GATE.format(table=table)) is None:
            assert not under_way.done(), under_way.result()
            await asyncio.sleep(0.005)
        yield under_way
    finally:
        await db.execute("insert into gate values (true)")
        await under_way
        await db.close()


async def is_busy(store: PostgresStore, batch: Batch) -> bool:
    """Whether the one group of a batch could not be written, since somebody holds the row of its run."""
    outcome = await told(store, batch)
    assert isinstance(outcome, Committed)
    return isinstance(outcome.answers.get(0), Busy)


async def race(url: str, runs: int, bite: int) -> Counter[int]:
    """Claimers take tasks until nothing is left; how many each of them took."""
    async with several(url, CLAIMERS) as stores:
        for first in range(0, runs, WRITTEN_AT_ONCE):
            numbers = range(first, min(first + WRITTEN_AT_ONCE, runs))
            groups = [[a_ripe_run(f"r{number:06}", workflow="task:wf")] for number in numbers]
            assert isinstance(await told(stores[0], Batch(groups, None, 0)), Committed)
        taken: Counter[str] = Counter()
        by_worker: Counter[int] = Counter()

        async def claim(number: int) -> None:
            claim = ClaimRuns(f"w-{number}", "main", ("default",), ("task:wf",), 1000, bite)
            nothing = 0
            while nothing < 3:
                outcome = await told(stores[number], Batch([[claim]], f"w-{number}", 1))
                assert isinstance(outcome, Committed)
                found = outcome.answers[0]
                assert isinstance(found, Applied)
                assert isinstance(found.value, list)
                assert len(found.value) <= bite
                taken.update(found.value)
                by_worker[number] += len(found.value)
                nothing = 0 if found.value else nothing + 1

        await asyncio.gather(*(claim(number) for number in range(CLAIMERS)))
        assert len(taken) == runs
        assert set(taken.values()) == {1}
        # What they were told is what stands there.
        owned = [len(await store.reads.owned_runs(f"w-{number}")) for number, store in enumerate(stores)]
        assert owned == [by_worker[number] for number in range(CLAIMERS)]
        return by_worker


async def test_claimers_that_race_take_every_run_once(postgres_url: str) -> None:
    """Nobody takes more than he asked for, nobody waits for another, and nothing is left."""
    by_worker = await race(postgres_url, RUNS, BITE)
    assert min(by_worker.values()) > 0


@pytest.mark.long
@pytest.mark.timeout(900)
async def test_sixteen_claimers_take_a_hundred_thousand_tasks_each_once(postgres_url: str) -> None:
    """Two that take the same task are rare, and who gets no share of them is seen only in the long run."""
    began = time.monotonic()
    by_worker = await race(postgres_url, MANY_RUNS, MANY_BITE)
    took, fair = time.monotonic() - began, MANY_RUNS / CLAIMERS
    least, most = min(by_worker.values()), max(by_worker.values())
    print(
        f"{MANY_RUNS} tasks, {CLAIMERS} claimers, {took:.0f} s; each took {least} to {most} of them, {fair:.0f} is fair"
    )
    assert least > fair / 2
    assert most < fair * 2


async def test_a_worker_that_is_just_writing_is_not_waited_for(postgres_url: str) -> None:
    """One that is frozen inside its transaction would hold up whoever takes it over, and all he has to write."""
    async with several(postgres_url, 2) as (rescuer, frozen):
        await told(frozen, Batch([[a_run("r1")._replace(owner="w-1")]], "w-1", 1))
        other = a_run("r2")._replace(owner="w-0")
        rescue = Batch([[RaiseEpoch("w-1", 1, 99_000), FreeRuns("w-1", 2000, 10)], [other]], None, 0)
        async with holding(postgres_url, "select 1 from workers where worker_id = 'w-1' for key share"):
            assert await told(rescuer, rescue) == Committed({0: Moved()})
        outcome = await told(rescuer, Batch(rescue.groups[:1], None, 0))
        assert outcome == Committed({0: Applied(Freed(1))})


async def test_the_run_that_a_frozen_worker_is_just_writing_holds_up_nobody(postgres_url: str) -> None:
    """A takeover that is refused judges nobody: it would wait for the only suspect's row, and fail with all else."""
    async with several(postgres_url, 2) as (rescuer, frozen):
        await told(frozen, Batch([[a_run("r1")._replace(owner="w-1")]], "w-1", 1))
        async with holding(postgres_url, "update runs set losses = 2 where run_id = 'r1'"):
            pass
        other = a_run("r2")._replace(owner="w-0")
        rescue = Batch([[RaiseEpoch("w-1", 1, 99_000), FreeRuns("w-1", 2000, 10)], [other]], None, 0)
        held = "select 1 from workers where worker_id = 'w-1' for key share; update runs set messages = 1"
        async with holding(postgres_url, held):
            assert await told(rescuer, rescue) == Committed({0: Moved()})
        assert await rescuer.reads.run("main", "r2") is not None


async def test_a_suspect_that_somebody_holds_is_judged_at_the_next_look(postgres_url: str) -> None:
    """A user's open transaction on the row of the only suspect keeps its worker's runs, and nobody else's change."""
    async with several(postgres_url, 2) as (rescuer, dead):
        await told(dead, Batch([[a_run("r1")._replace(owner="w-1")]], "w-1", 1))
        async with holding(postgres_url, "update runs set losses = 2 where run_id = 'r1'"):
            pass
        takeover: list[Operation] = [RaiseEpoch("w-1", 1, 99_000), FreeRuns("w-1", 2000, 10)]
        async with holding(postgres_url, "update runs set messages = 0 where run_id = 'r1'"):
            rescue = Batch([takeover, [a_run("r2")._replace(owner="w-0")]], None, 0)
            assert await told(rescuer, rescue) == Committed({0: Moved()})
        assert await rescuer.reads.run("main", "r2") is not None
        freed = Freed(1, Paused("r1", 3, 3000))
        assert await told(rescuer, Batch([takeover], None, 0)) == Committed({0: Applied(freed)})


async def test_of_runs_that_get_another_try_only_one_that_is_held_by_somebody_waits(postgres_url: str) -> None:
    async with several(postgres_url, 1) as (store,):
        runs = [a_run(f"r{number}")._replace(owner="w-0") for number in range(3)]
        holds = [HoldRun(run.run_id, "w-0", "mismatch", "{}", 1000) for run in runs]
        await told(store, Batch([[run] for run in runs] + [[hold] for hold in holds], "w-0", 1))
        free = Batch([[FreeMismatches("main", ("default",), ("wf",), 2000)]], "w-0", 1)
        async with holding(postgres_url, "update runs set messages = 0 where run_id = 'r1'"):
            assert await told(store, free) == Committed({0: Applied(2)})
        assert await told(store, free) == Committed({0: Applied(1)})


async def test_a_batch_that_meets_a_takeover_is_fenced(postgres_url: str) -> None:
    """It waits for the takeover to end, and then finds that it lost."""
    async with several(postgres_url, 2) as (_, zombie):
        await told(zombie, Batch([[a_run("r1")._replace(owner="w-1")]], "w-1", 1))
        late = Batch([[an_event("r1", 2)]], "w-1", 1)
        async with holding(postgres_url, "update workers set epoch = 2 where worker_id = 'w-1'"):
            # A plain update of the epoch lets key share pass; ours takes the row first.
            pass
        assert await told(zombie, late) == Fenced()
        assert await zombie.reads.last_event("r1") is None


@pytest.mark.parametrize("manner", ["in one round trip", "in steps"])
async def test_nobody_takes_over_a_worker_between_its_fence_and_its_commit(postgres_url: str, manner: str) -> None:
    """The batch has seen that the epoch is its own; taken over then, two owners would write one history."""
    async with several(postgres_url, 2) as (rescuer, writer):
        await told(writer, Batch([[a_run("r1")._replace(owner="w-1")]], "w-1", 1))
        beside: list[list[Operation]] = (
            [[FreeMismatches("main", ("default",), ("wf",), 2000)]] if manner == "in steps" else []
        )
        late = Batch([[an_event("r1", 2)], *beside], "w-1", 1)
        takeover = Batch([[RaiseEpoch("w-1", 1, 99_000), FreeRuns("w-1", 2000, 10)]], None, 0)
        async with stopped_at(postgres_url, "events", "true", writer, late) as written:
            assert await told(rescuer, takeover) == Committed({0: Moved()})
        assert isinstance(written.result(), Committed)
        assert await told(rescuer, takeover) == Committed({0: Applied(Freed(1))})
        assert await told(writer, Batch([[an_event("r1", 3)]], "w-1", 1)) == Fenced()


async def test_a_namespace_is_not_deleted_under_a_worker_that_begins_there(postgres_url: str) -> None:
    """The worker's row is not to be seen yet, and its namespace would be gone when it is."""
    async with several(postgres_url, 2) as (one, other):
        begins = RegisterWorker("w-9", "blue", 99_000, ("default",), "host", 9, 1000)
        await told(one, Batch([[begins._replace(worker_id="w-8")]], None, 0))
        await told(one, Batch([[DeleteWorker("w-8")]], None, 0))
        batch = Batch([[begins]], None, 0)
        async with stopped_at(postgres_url, "workers", "new.worker_id = 'w-9'", one, batch):
            deleted = asyncio.ensure_future(told(other, Batch([[DeleteNamespace("blue")]], None, 0)))
            await asyncio.wait({deleted}, timeout=0.2)
        outcome = await deleted
        assert isinstance(outcome, Committed)
        assert outcome.answers[0] == Remaining(0, 1) or isinstance(outcome.answers[0], Busy)
        assert [row.name for row in await one.reads.namespaces.all()] == ["blue", "main"]


async def test_of_two_callers_with_one_key_the_second_waits_for_the_first(postgres_url: str) -> None:
    """Else both would start a run: neither sees the key of the other before it is committed."""
    async with several(postgres_url, 2) as (one, other):
        take = TakeKey("a", "main", "start", "k", "digest", "1", 1000, 1600, 9000)
        first, second = (
            Batch([[take._replace(holder=name), a_run(f"r-{name}")]], f"w-{number}", 1)
            for number, name in enumerate("ab")
        )
        async with stopped_at(postgres_url, "runs", "new.run_id = 'r-a'", one, first) as written:
            waiting = asyncio.ensure_future(told(other, second))
            await asyncio.wait({waiting}, timeout=0.2)
        assert written.result() == Committed({})
        outcome = await waiting
        while outcome != Committed({0: KeptKey(take.row)}):
            assert isinstance(outcome, Committed)
            assert isinstance(outcome.answers[0], Busy)
            outcome = await told(other, second)
        assert await one.reads.run("main", "r-b") is None


async def test_of_two_senders_to_one_run_the_second_waits_for_the_first(postgres_url: str) -> None:
    """The owner reads on after the last number it saw: one that is lower and comes later would not be read."""
    async with several(postgres_url, 2) as (one, other):
        await told(one, Batch([[a_run("r1")]], "w-0", 1))
        slow, quick = (Batch([[a_message("r1", name)]], None, 0) for name in ("slow", "quick"))
        async with stopped_at(postgres_url, "inbox", "new.message_id = 'slow'", one, slow) as first:
            assert await is_busy(other, quick)
        assert first.result() == Committed({0: Applied(Posted(1, 1))})
        while await is_busy(other, quick):  # noqa: ASYNC110 - it looks again in its time
            await asyncio.sleep(0.005)
        assert [message.message_id for message in await one.reads.unread("r1")] == ["slow", "quick"]


async def test_a_run_does_not_end_between_a_message_and_its_being_told_of_it(postgres_url: str) -> None:
    """A closed run that is made ripe is claimed by the next worker, and worked once more."""
    async with several(postgres_url, 2) as (sender, owner):
        await told(owner, Batch([[a_run("r1")]], "w-1", 1))
        end = Batch([[an_end("r1", 2)]], "w-1", 1)
        signal = Batch([[a_message("r1")]], None, 0)
        async with stopped_at(postgres_url, "inbox", "true", sender, signal) as sent:
            assert await is_busy(owner, end)
        assert sent.result() == Committed({0: Applied(Posted(1, 1))})
        while await is_busy(owner, end):  # noqa: ASYNC110 - as above
            await asyncio.sleep(0.005)
        closed = await owner.reads.run("main", "r1")
        assert closed is not None
        assert (closed.status, closed.wake_at, closed.messages) == ("COMPLETED", None, 1)


async def test_a_signal_in_an_open_transaction_keeps_its_run_from_being_parked(postgres_url: str) -> None:
    """The park waits in vain, is tried again, and finds one message more than the owner knows of."""
    async with Perdure(postgres_url, park_after=0.2) as app:
        run = await app.start(waits_to_be_answered)
        address = address_of(postgres_url)
        db = await asyncpg.connect(address.dsn)
        transaction = db.transaction()
        await transaction.start()
        await run.signal(answer, 7, connection=db)
        other = await app.start(waits_to_be_answered)
        # Those beside it are parked meanwhile.
        while (await other.describe()).status is not Status.SUSPENDED:  # noqa: ASYNC110 - the worker parks it in its time
            await asyncio.sleep(0.05)
        assert (await run.describe()).status is Status.RUNNING
        await transaction.commit()
        assert await run.result(timeout=60) == 7
        await db.close()


async def test_a_ripe_run_that_somebody_holds_is_looked_for_less_and_less_often(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every worker asked the server four hundred things a second for as long as a transaction was left open."""
    looked: list[float] = []
    next_wake = Reads.next_wake

    async def noted(reads: Reads, *known: Any, suspects: bool = False) -> int | None:
        looked.append(time.monotonic())
        return await next_wake(reads, *known, suspects=suspects)

    async with several(postgres_url, 1) as (store,):
        await told(store, Batch([[a_ripe_run("r", workflow=waits_to_be_answered.name)]], None, 0))
    async with holding(postgres_url, "select 1 from runs where run_id = 'r' for update"):
        monkeypatch.setattr(Reads, "next_wake", noted)
        async with Perdure(postgres_url):
            while len(looked) < 12:  # noqa: ASYNC110 - the worker looks in its time
                await asyncio.sleep(0.01)

    assert looked[11] - looked[0] > 1.0


@pytest.mark.parametrize("losses", [2, 4])
async def test_a_suspect_that_somebody_holds_keeps_no_other_from_coming_back(postgres_url: str, losses: int) -> None:
    """One whose row a transaction outside held was always the first one, and no suspect of any queue was claimed."""
    async with several(postgres_url, 1) as (store,):
        suspects = [a_ripe_run(f"s{number}")._replace(wake_at=1000 + number) for number in range(3)]
        await told(store, Batch([[run] for run in suspects], None, 0))
        async with holding(postgres_url, "update runs set losses = case run_id when 's0' then 4 else $1 end", losses):
            pass
        claim = Batch([[ClaimRuns("w-0", "main", ("default",), ("wf",), 2000, 1, 100)]], "w-0", 1)
        async with holding(postgres_url, "select 1 from runs where run_id = 's0' for update"):
            taken = [await told(store, claim) for _ in range(3)]
        taken.append(await told(store, claim))

        assert taken == [Committed({0: Applied(found)}) for found in (["s1"], ["s2"], [], ["s0"])]


async def test_many_retries_at_once_make_one_run(postgres_url: str) -> None:
    """Each by a process of its own: whoever is first makes it, and all others are told of that one."""
    async with several(postgres_url, 8) as stores:
        for number in range(5):
            old = f"r{number}"
            end = an_end(old, 4)._replace(owner="w-0")
            begun: list[Operation] = [a_run(old)._replace(owner="w-0"), an_event(old, 2), an_event(old, 3), end]
            assert await told(stores[0], Batch([begun], "w-0", 1)) == Committed({})
            groups = [a_retry(f"{old}-{n}", old, Kept(2, 3, 0)) for n in range(len(stores))]
            outcomes = await asyncio.gather(
                *(told(store, Batch([group], None, 0)) for store, group in zip(stores, groups, strict=True))
            )

            answers = [outcome.answers.get(0) for outcome in outcomes if isinstance(outcome, Committed)]
            winner = await stores[0].reads.latest_run("main", old)
            assert winner is not None
            assert answers.count(None) == 1
            assert {each.run.run_id for each in answers if isinstance(each, Taken)} == {winner.run_id}
            assert len(answers) == len(stores)
            assert [event.seq for event in await stores[0].reads.events(winner, 0, 9)] == [1, 2, 3]
