"""Ripe at once is not a time: who starts, signals or lets go of a run on SQLite may have any clock."""

import asyncio
import random
import re
import sqlite3
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest

from perdure import Signal, Status, activity, sleep, workflow
from perdure.stores.operations import (
    FreeMismatches,
    FreeRuns,
    HoldRun,
    InsertRun,
    Operation,
    ParkRun,
    PostMessage,
    RaiseEpoch,
    ResumeRun,
)
from perdure.stores.queries import migrations
from perdure.testing import Environment, VirtualClock
from perdure.testing.clock import FIRST_MS
from tests.test_poison import Ledger, a_ledger

go = Signal("go", str)
DAY_MS = 86_400_000
NOW = 1000
SIGNAL = '{"name":"go","payload":1}'


@activity
async def word_at_once(word: str) -> str:
    return word


@workflow
async def says_it_at_once(word: str) -> str:
    return await word_at_once(word)


@workflow
async def waits_to_go_at_once() -> str:
    return await go.receive()


@workflow
async def is_interrupted_at_once() -> str:
    await word_at_once("first")
    await asyncio.Event().wait()
    return "never"


@workflow
async def leaves_a_child_at_once() -> str:
    child = asyncio.create_task(waits_to_go_at_once.options(id="child", queue="children")())
    word = await go.receive()
    assert not child.done()
    return word


@workflow
async def sleeps_for_that_minute() -> str:
    await sleep(60.0)
    return "awake"


def ahead(path: Path, *, worker: bool = False) -> Environment:
    """A process whose clock is a day ahead of all others."""
    return Environment(str(path), clock=VirtualClock(FIRST_MS + DAY_MS), worker=worker)


async def test_a_run_started_by_a_clock_a_day_ahead_is_taken_at_once(tmp_path: Path) -> None:
    """A machine that boots with a wrong clock starts runs; nobody took them for a day."""
    async with Environment(str(tmp_path / "ahead.db")) as env, ahead(tmp_path / "ahead.db") as sender:
        await sender.start(says_it_at_once.options(id="early"), "word")
        await env.pass_time(1)
        assert (await (await env.app.get("early")).describe()).status is Status.COMPLETED


async def test_a_run_started_by_a_clock_a_day_ahead_is_parked_when_it_waits(tmp_path: Path) -> None:
    """Its last event lies in the future; whoever goes by that alone keeps it in memory until then."""
    async with Environment(str(tmp_path / "ahead.db")) as env, ahead(tmp_path / "ahead.db") as sender:
        await sender.start(waits_to_go_at_once.options(id="early"))
        run = await env.app.get("early")
        for _ in range(5):
            await env.pass_time(1)
        assert [wait.kind for wait in (await run.describe()).waiting_for] == ["signal"]
        assert (await run.describe()).status is Status.RUNNING
        for _ in range(10):
            await env.pass_time(1)
        assert (await run.describe()).status is Status.SUSPENDED


async def test_a_parked_run_signalled_by_a_clock_a_day_ahead_is_woken_at_once(tmp_path: Path) -> None:
    """The signal was acknowledged, and the run slept on for a day."""
    async with Environment(str(tmp_path / "ahead.db")) as env, ahead(tmp_path / "ahead.db") as sender:
        run = await env.start(waits_to_go_at_once.options(id="parked"))
        await env.pass_time(30)
        assert (await run.describe()).status is Status.SUSPENDED
        await (await sender.app.get("parked")).signal(go, "now")
        await env.pass_time(1)
        assert (await run.describe()).status is Status.COMPLETED


async def test_a_run_handed_back_by_a_clock_a_day_ahead_is_taken_at_once(tmp_path: Path) -> None:
    """Its worker was stopped in the middle of it."""
    async with ahead(tmp_path / "ahead.db", worker=True) as stopped:
        await stopped.start(is_interrupted_at_once.options(id="handed-back"))
        await stopped.settle()
    async with Environment(str(tmp_path / "ahead.db")) as env:
        await env.settle()
        assert (await (await env.app.get("handed-back")).describe()).status is Status.RUNNING


async def test_the_runs_of_a_dead_worker_freed_by_a_clock_a_day_ahead_are_taken_at_once(tmp_path: Path) -> None:
    """Who notices first that a worker has died may have no right time either."""
    dead = Environment(str(tmp_path / "ahead.db"))
    await dead.open()
    await dead.start(is_interrupted_at_once.options(id="orphan"))
    await dead.settle()
    worker_id = dead.engine.worker_id
    dead.bury()
    async with ahead(tmp_path / "ahead.db") as rescuer:
        await rescuer.elsewhere([RaiseEpoch(worker_id, 1), FreeRuns(worker_id, rescuer.clock.now(), 10)])
    async with Environment(str(tmp_path / "ahead.db")) as env:
        await env.settle()
        assert (await (await env.app.get("orphan")).describe()).status is Status.RUNNING


async def test_a_parked_child_of_a_run_that_ends_by_a_clock_a_day_ahead_is_cancelled_at_once(tmp_path: Path) -> None:
    """It was asked to stop, and slept on for a day."""
    path = tmp_path / "ahead.db"
    async with Environment(str(path), queues=("children",)) as env, ahead(path, worker=True) as parents:
        run = await parents.start(leaves_a_child_at_once)
        await parents.settle()
        for _ in range(3):
            await env.pass_time(11)
        child = await env.app.get("child")
        assert (await child.describe()).status is Status.SUSPENDED
        await run.signal(go, "enough")
        await parents.settle()
        await env.pass_time(1)
        assert (await child.describe()).status is Status.CANCELLED


async def test_a_signal_from_a_clock_a_day_ahead_does_not_end_a_delay(tmp_path: Path) -> None:
    """Signals do not end delays; by the sender's clock this one was over."""
    async with Environment(str(tmp_path / "ahead.db")) as env, ahead(tmp_path / "ahead.db") as sender:
        run = await env.app.start(waits_to_go_at_once.options(id="delayed", delay=timedelta(hours=1)))
        await (await sender.app.get("delayed")).signal(go, "later")
        await env.pass_time(timedelta(minutes=59))
        assert (await run.describe()).status is Status.PENDING
        await env.pass_time(timedelta(minutes=2))
        assert (await run.describe()).status is Status.COMPLETED


async def test_a_timer_keeps_its_time_beside_a_clock_a_day_ahead(tmp_path: Path) -> None:
    """What sleeps has a time, whoever else writes to the database."""
    async with Environment(str(tmp_path / "ahead.db")) as env, ahead(tmp_path / "ahead.db") as sender:
        run = await env.start(sleeps_for_that_minute)
        await env.pass_time(30)
        assert (await run.describe()).status is Status.SUSPENDED
        await sender.start(says_it_at_once.options(id="beside"), "word")
        await env.pass_time(29)
        assert (await run.describe()).status is Status.SUSPENDED
        assert await env.result(run) == "awake"
        (fired,) = [event for event in await env.events(run.id) if event.kind == "TimerFired"]
        assert fired.at - (await run.describe()).created_at < timedelta(minutes=2)


# First come, first served, as far as commits tell

# Whatever makes a run ripe at once; each by another clock than the one before.
MADE_RIPE: dict[str, tuple[str, Operation]] = {
    "started": ("", InsertRun("started", "main", "started", "wf", "default", "PENDING", None, 9, 0, "{}", 7, 9)),
    "handed back": ("own", ParkRun("handed back", "w", "PENDING", 7000, None, None, 7000)),
    "signalled": ("park", PostMessage("signalled", "m", "SignalSent", SIGNAL, 500)),
    "freed": ("own by a dead one", FreeRuns("dead", 9000, 10)),
    "resumed": ("hold", ResumeRun("resumed", 20)),
    "mismatched": ("hold", FreeMismatches("main", ("default",), ("wf",), 4000)),
}


def prepare(ledger: Ledger, run_id: str, how: str) -> None:
    """Bring a run to where it can be made ripe."""
    owner = "dead" if how == "own by a dead one" else "w"
    ledger.insert(run_id)
    ledger.own(run_id, owner)
    if how == "park":
        ledger.write(ParkRun(run_id, owner, "SUSPENDED", None, "[]", None, NOW))
    elif how == "hold":
        reason = "mismatch" if run_id == "mismatched" else "quarantine"
        ledger.write(HoldRun(run_id, owner, reason, "{}", NOW))


@pytest.mark.parametrize("seed", range(5))
async def test_what_is_ripe_at_once_is_claimed_in_the_order_of_commits_whatever_the_clocks_say(seed: int) -> None:
    """One value for all would serve whoever has the luckiest row; times serve whoever has the slowest clock."""
    order = random.Random(seed).sample(sorted(MADE_RIPE), len(MADE_RIPE))
    async with a_ledger() as ledger:
        for run_id, (how, _) in MADE_RIPE.items():
            if how:
                prepare(ledger, run_id, how)
        for run_id in order:
            ledger.write(MADE_RIPE[run_id][1])
        worker_id = ledger.register()
        assert [ledger.claim(worker_id, limit=1) for _ in order] == [[run_id] for run_id in order]


async def test_a_message_for_a_run_that_is_ripe_already_leaves_it_its_turn() -> None:
    """Whoever is written to again and again would else never be served."""
    async with a_ledger("first", "second") as ledger:
        ledger.write(PostMessage("first", "m", "SignalSent", SIGNAL, NOW))
        worker_id = ledger.register()
        assert [ledger.claim(worker_id, limit=1) for _ in range(2)] == [["first"], ["second"]]


async def test_neither_timers_nor_what_is_ripe_at_once_starve_while_the_others_come_and_come() -> None:
    """A worker that is never done with the one kind must come to the other."""
    async with a_ledger() as ledger:
        worker_id, claimed = ledger.register(), []
        ledger.insert("timer", wake_at=NOW + 5)
        for number in range(20):
            ledger.insert(f"start-{number}a", f"start-{number}b")
            claimed += ledger.claim(worker_id, limit=1, now=NOW + number)
        assert claimed.index("timer") < 15
        ledger.insert("start")
        for number in range(20, 50):
            ledger.insert(f"timer-{number}a", f"timer-{number}b", wake_at=NOW + number)
            claimed += ledger.claim(worker_id, limit=1, now=NOW + number)
        assert "start" in claimed


async def test_timers_that_are_due_are_claimed_by_their_priorities() -> None:
    """By time alone nobody would see that the last one is urgent."""
    async with a_ledger() as ledger:
        for number in range(5):
            ledger.insert(f"timer-{number}", wake_at=NOW + 1 + number, priority=number)
        assert ledger.claim(ledger.register(), limit=1, now=NOW + 5) == ["timer-4"]


# Databases of before


async def test_what_was_ripe_by_a_clock_that_was_ahead_is_ripe_after_the_migration(tmp_path: Path) -> None:
    """A run that was to go on tomorrow, for no reason but a wrong clock, goes on; what sleeps, sleeps on."""
    path = tmp_path / "old.db"
    async with Environment(str(path)) as env:
        await env.app.start(says_it_at_once.options(id="delayed", delay=timedelta(hours=1)), "word")
        await env.start(waits_to_go_at_once.options(id="signalled"))
        await env.start(sleeps_for_that_minute.options(id="asleep"))
        await env.pass_time(30)
    async with Environment(str(path), worker=False) as client:
        await client.start(says_it_at_once.options(id="started"), "word")
        await (await client.app.get("signalled")).signal(go, "word")
    later = FIRST_MS + DAY_MS
    with closing(sqlite3.connect(path)) as db:
        # As the version before this wrote it, by a clock a day ahead.
        downgrade(db)
        db.execute("update runs set wake_at = ?, created_at = ? where workflow_id = 'started'", (later, later))
        db.execute("update runs set wake_at = ? where workflow_id = 'signalled'", (later,))
        db.execute("update inbox set at = ?", (later,))
        db.commit()
    async with Environment(str(path), clock=VirtualClock(FIRST_MS + 30_000)) as env:
        await env.pass_time(1)
        seen = {run.id: run.status for run in await env.app.list()}
    assert seen == {
        "started": Status.COMPLETED,
        "signalled": Status.COMPLETED,
        "delayed": Status.PENDING,
        "asleep": Status.SUSPENDED,
    }


def downgrade(db: sqlite3.Connection) -> None:
    """Take back what came with the turns and after them, as far as the schema goes."""
    for (name,) in db.execute("select name from sqlite_schema where type = 'index' and sql is not null").fetchall():
        db.execute(f"drop index {name}")
    for view in re.findall(r"create view (\w+)", "".join(migrations("sqlite")[5:])):
        db.execute(f"drop view {view}")
    for added in re.findall(r"alter table (\w+) add column (\w+)", "".join(migrations("sqlite")[5:])):
        db.execute("alter table {} drop column {}".format(*added))
    for table in re.findall(r"create table (\w+)", "".join(migrations("sqlite")[5:])):
        db.execute(f"drop table {table}")
    for statement in re.findall(r"create (?:unique )?index .*?;", "".join(migrations("sqlite")[:5]), re.DOTALL):
        name = re.search(r"index (\w+)", statement)
        assert name is not None
        db.execute(f"drop index if exists {name[1]}")
        db.execute(statement)
    db.execute("update perdure_schema set version = 5")
