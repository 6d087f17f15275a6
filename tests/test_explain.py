"""Explain: why a run does not move, told for every cause there is."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from datetime import datetime, timedelta
from typing import Any

import asyncpg
import pytest

from perdure import (
    Deferred,
    Explanation,
    Request,
    Retry,
    Run,
    Signal,
    activity,
    heartbeat,
    select,
    sleep,
    workflow,
)
from perdure.engine.ports import Hold
from perdure.kernel.quarantine import quarantine_report
from perdure.kernel.schedules import as_moment
from perdure.stores.postgres.address import address_of
from perdure.stores.queries import migrations, queries
from perdure.testing import Environment

go = Signal("go", int)
paid = Deferred("paid", int)
asks = Request("asks", int, int)


@workflow
async def gets_a_signal() -> int:
    return await go.receive()


@workflow
async def gets_a_deferred() -> int:
    return await paid.wait()


@workflow
async def gets_a_request() -> int:
    return (await asks.receive()).value


@workflow
async def sleeps_long() -> None:
    await sleep(timedelta(days=3))


@workflow
async def selects() -> str:
    name, _ = await select(expire=sleep(3600), go=go.receive())
    return str(name)


@workflow
async def returns() -> int:
    return 7


@activity
async def hangs() -> None:
    heartbeat({"done": 3})
    await asyncio.Event().wait()


@activity(retry=Retry(max_attempts=5, initial_interval=600, max_interval=600))
async def fails() -> None:
    raise OSError("the bank is closed")


@activity(queue="far")
async def explain_far_away() -> int:
    return 1


@workflow
async def calls_hangs() -> None:
    await hangs()


@workflow
async def calls_fails() -> None:
    await fails()


@workflow
async def explain_calls_far_away() -> int:
    return await explain_far_away()


@workflow
async def explain_child() -> int:
    return await gets_a_signal.options(id="the child")()


@workflow
async def calls_the_next(depth: int) -> int:
    if depth == 0:
        return await go.receive()
    return await calls_the_next.options(id=f"depth {depth - 1}")(depth - 1)


@workflow
async def explain_waits_for(circle: str) -> int:
    """The run whose id is the first letter waits for the one of the next."""
    await go.receive()
    others = circle[1:] if circle[0] == "d" else circle[1:] + circle[0]
    return await explain_waits_for.options(id=others[0])(others)


async def explained(env: Environment, id: str) -> Explanation:
    return await (await env.app.get(id)).explain()


def cause_below(told: Explanation) -> str | None:
    """The cause of the run that this one waits for."""
    return None if told.why is None else told.why.cause


def until(told: Explanation, name: str = "until") -> datetime:
    found = told.evidence[name]
    assert isinstance(found, datetime)
    return found


@asynccontextmanager
async def client_of(env: Environment) -> AsyncIterator[Environment]:
    """Another process on the same database, which works nothing."""
    async with Environment(env.path, clock=env.clock, worker=False) as client:
        yield client


async def hold(env: Environment, run: Run[Any], reason: str) -> None:
    """What the worker does with a run that cannot go on."""
    live = env.worker._live[run.run_id]
    env.engine.owner.release(live.owned, Hold(reason, quarantine_report(run.id, ())), lambda _: None)
    env.worker._runs.evict(live)
    await env.settle()


@asynccontextmanager
async def row_held(url: str, run_id: str) -> AsyncIterator[None]:
    """Somebody looks at a run in a transaction, and goes for lunch."""
    address = address_of(url)
    settings = {"search_path": address.schema, "application_name": "lunch"}
    db = await asyncpg.connect(address.dsn, server_settings=settings)
    try:
        async with db.transaction():
            await db.execute("select * from runs where run_id = $1 for update", run_id)
            yield
    finally:
        await db.close()


async def test_a_run_that_has_ended_says_how(env: Environment) -> None:
    async with env:
        run = await env.start(returns.options(id="a"))
        assert await env.result(run) == 7
        told = await run.explain()
    assert told.cause == "closed"
    assert told.summary.startswith("it has ended: COMPLETED at ")
    assert told.evidence["status"] == "COMPLETED"


async def test_a_delay_is_told_until_when(env: Environment) -> None:
    async with env:
        run = await env.start(returns.options(id="a", delay=600))
        told = await run.explain()
        assert told.cause == "delayed"
        assert (until(told) - (await run.describe()).created_at).total_seconds() == 600


@pytest.mark.parametrize(
    ("code", "cause", "name", "command"),
    [
        (gets_a_signal, "signal", "go", "signal"),
        (gets_a_deferred, "deferred", "paid", "resolve"),
        (gets_a_request, "request", "asks", "ask"),
    ],
)
async def test_what_comes_from_outside_is_told_by_name_live_and_parked(
    env: Environment, code: Any, cause: str, name: str, command: str
) -> None:
    async with env:
        run = await env.start(code.options(id="a"))
        for seconds in (2, 60):
            await env.pass_time(seconds)
            told = await run.explain()
            assert (told.cause, told.evidence["name"]) == (cause, name)
            assert told.summary == f"it waits for the {cause} {name!r}"
            assert f"`perdure {command} a {name} JSON`" in (told.advice or "")


async def test_a_timer_is_told_until_when(env: Environment) -> None:
    async with env:
        run = await env.start(sleeps_long.options(id="a"))
        await env.pass_time(60)
        told = await run.explain()
        assert told.cause == "timer"
        assert (until(told) - (await run.describe()).created_at).days == 3


async def test_attributes_from_outside_move_no_run(env: Environment) -> None:
    """Whoever marks a run as seen still reads since when it waits."""
    async with env:
        run = await env.start(selects.options(id="a"))
        await env.pass_time(60)
        before, told = await run.describe(), await run.explain()
        await env.pass_time(600)
        await run.set_attributes(seen=True)
        assert (await run.describe()).attributes == {"seen": True}
        assert (await run.describe()).updated_at == before.updated_at
        assert (await run.explain()).since == told.since


async def test_of_several_waits_the_others_are_told_as_well(env: Environment) -> None:
    async with env:
        run = await env.start(selects.options(id="a"))
        await env.pass_time(60)
        told = await run.explain()
    assert told.cause == "signal"
    assert "'kind': 'timer'" in str(told.evidence["also"])


async def test_an_activity_is_told_with_its_attempt_and_its_last_beat(env: Environment) -> None:
    async with env:
        run = await env.start(calls_hangs.options(id="a"))
        await env.pass_time(20)
        told = await run.explain()
        assert (told.cause, told.evidence["name"], told.evidence["attempt"]) == ("activity", "hangs", 1)
        assert told.evidence["details"] == {"done": 3}
        assert told.evidence["beat_at"] is not None


@activity(retry=Retry(max_attempts=2, initial_interval=1))
async def fails_then_hangs() -> None:
    if not tried:
        tried.append(True)
        raise OSError("the bank is closed")
    await asyncio.Event().wait()


tried: list[bool] = []


@workflow
async def calls_fails_then_hangs() -> None:
    await fails_then_hangs()


async def test_an_attempt_that_runs_after_a_failed_one_is_told_as_one_that_runs(env: Environment) -> None:
    tried.clear()
    async with env:
        run = await env.start(calls_fails_then_hangs)
        await env.pass_time(20)
        told = await run.explain()
        assert (told.cause, told.evidence["attempt"]) == ("activity", 2)


async def test_between_two_attempts_the_next_time_and_the_last_error_are_told(env: Environment) -> None:
    async with env:
        run = await env.start(calls_fails.options(id="a"))
        for seconds in (2, 60):
            await env.pass_time(seconds)
            told = await run.explain()
            assert (told.cause, told.evidence["attempt"]) == ("retry", 2)
            assert told.evidence["error"] == "OSError: the bank is closed"
            assert told.since is not None
            assert (until(told, "next_at") - told.since).total_seconds() == 600


async def test_a_child_is_told_with_its_own_cause(env: Environment) -> None:
    async with env:
        run = await env.start(explain_child.options(id="a"))
        await env.pass_time(60)
        told = await run.explain()
        assert (told.cause, told.evidence["id"]) == ("child", "the child")
        assert cause_below(told) == "signal"
        assert "'the child'" in told.summary
        assert "it waits for the signal 'go'" in told.summary
        assert told.to_dict()["why"]["cause"] == "signal"  # type: ignore[index]


async def test_children_are_followed_five_deep(env: Environment) -> None:
    async with env:
        run = await env.start(calls_the_next.options(id="top"), 7)
        await env.pass_time(60)
        told: Explanation | None = await run.explain()
    causes = []
    while told is not None:
        causes.append(told.cause)
        told = told.why
    assert causes == ["child"] * 6


async def test_an_activity_on_a_queue_that_nobody_works_is_told_with_the_reason(env: Environment) -> None:
    async with env:
        run = await env.start(explain_calls_far_away.options(id="a"))
        await env.pass_time(60)
        told = await run.explain()
        assert (told.cause, cause_below(told)) == ("activity", "no_worker")
        assert told.advice == "start one: `perdure worker MODULE --queue far`"


async def test_an_activity_on_a_queue_that_has_failed_names_the_run_that_called_it(env: Environment) -> None:
    """To retry it alone would do its work once more, and tell nobody."""
    async with env:
        run = await env.start(explain_calls_far_away.options(id="a"))
        await env.pass_time(20)
        (task,) = await run.children()
        await (await env.app.get(run_id=task.run_id)).terminate("enough")
        told = await (await env.app.get(run_id=task.run_id)).explain()
    assert told.cause == "closed"
    assert f"retry that: `perdure retry {run.run_id}`" in str(told.advice)


async def test_runs_that_wait_for_each_other_are_a_deadlock(env: Environment) -> None:
    """Neither will ever go on, and looked at alone each seems to wait as it should."""
    async with env:
        for circle in ("abc", "bca", "cab", "dabc"):
            await env.start(explain_waits_for.options(id=circle[0]), circle)
        await env.settle()
        for id in "abcd":
            await (await env.app.get(id)).signal(go, 1)
        await env.pass_time(60)
        told = await explained(env, "b")
        assert (told.cause, told.evidence["circle"]) == ("deadlock", ["b", "c", "a", "b"])
        outside = await explained(env, "d")
        assert (outside.cause, cause_below(outside)) == ("child", "deadlock")
        for id in "abcd":
            await (await env.app.get(id)).terminate()


@pytest.mark.parametrize("held", ["mismatch", "quarantine"])
async def test_a_held_run_says_why_and_what_to_do(env: Environment, held: str) -> None:
    async with env:
        run = await env.start(gets_a_signal.options(id="a"))
        await env.settle()
        await hold(env, run, held)
        told = await run.explain()
        assert told.cause == held
        assert f"held as {held}: 0 workers died with this run" in told.summary
        assert "`perdure resume a`" in (told.advice or "")


async def test_without_a_worker_of_its_queue_that_is_the_cause(env: Environment) -> None:
    async with client_of(env) as client:
        await client.start(returns.options(id="a", queue="far"))
        told = await explained(client, "a")
        assert (told.cause, told.evidence["queue"]) == ("no_worker", "far")
        async with env:
            told = await explained(client, "a")
            assert told.cause == "no_worker"
            assert """'queues': '["default"]'""" in str(told.evidence["workers"])


async def test_workers_of_other_namespaces_are_none_of_its_own(env: Environment) -> None:
    async with env:
        await env.app.namespaces.create("blue")
        async with Environment(env.path, clock=env.clock, worker=False, namespace="blue") as blue:
            told = await (await blue.start(returns.options(id="a"))).explain()
    assert (told.cause, told.evidence["workers"]) == ("no_worker", [])


async def test_workers_without_its_code_are_named_with_what_they_have(env: Environment) -> None:
    env.workflows = [gets_a_signal]
    async with client_of(env) as client, env:
        await client.start(returns.options(id="a"))
        await env.pass_time(2)
        told = await explained(client, "a")
        assert (told.cause, told.evidence["workflow"]) == ("no_code", "returns")
        assert "workers there have: gets_a_signal" in told.summary
        assert '@workflow(name="returns")' in (told.advice or "")


async def test_a_worker_that_hangs_and_had_the_code_is_named(env: Environment) -> None:
    """Whoever is paged has to find the process that should have taken the run."""
    async with client_of(env) as client, Environment(env.path, clock=env.clock, workflows=[returns]):
        env.clock.set_by(60_000)
        env.workflows = [gets_a_signal]
        async with env:
            await client.start(returns.options(id="a"))
            told = await explained(client, "a")
            assert told.cause == "no_code"
            assert told.evidence["last_had"] is not None
            assert "which is gone or hangs, last had it" in told.summary


async def test_a_paused_run_says_so_with_its_reason(env: Environment) -> None:
    async with env:
        run = await env.start(gets_a_signal.options(id="a"))
        await env.settle()
        await run.pause("the bank is closed")
        await env.settle()
        told = await run.explain()
        assert told.cause == "paused"
        assert "the bank is closed" in told.summary
        assert "`perdure resume a`" in (told.advice or "")


async def test_a_run_that_is_to_pause_once_its_activity_has_ended_says_so(env: Environment) -> None:
    """Whoever has paused it would else not know whether that was heard; taken back, it is not told any more."""
    async with env:
        run = await env.start(calls_hangs.options(id="a"))
        await env.settle()
        await run.pause("the bank is closed")
        await env.settle()
        told = await run.explain()
        assert told.cause != "paused"
        assert "it was asked to pause (the bank is closed), and is held once what is under way" in told.summary
        assert told.evidence["pause_reason"] == "the bank is closed"

        await run.resume()
        await env.settle()
        assert "pause" not in (await run.explain()).summary


async def test_what_is_ahead_on_the_queue_is_counted_as_claims_would_take_it(env: Environment) -> None:
    """Those of higher priority and those that came before; not those of other queues, nor those nobody has code for."""
    async with client_of(env) as client:
        await client.start(calls_hangs.options(id="takes the only place", priority=9))
        await client.start(returns.options(id="first"))
        env.clock.advance(1)
        await client.start(gets_a_signal.options(id="second"))
        env.clock.advance(1)
        await client.start(sleeps_long.options(id="without code"))
        await client.start(returns.options(id="other queue", queue="far"))
        await client.start(returns.options(id="third"))
        await client.start(returns.options(id="before all", priority=3))
        await client.start(returns.options(id="later", priority=3, delay=3600))
        known = [returns, gets_a_signal, calls_hangs]
        async with Environment(env.path, clock=env.clock, workflows=known, max_live=1) as busy:
            await busy.settle()
            told = {id: await explained(client, id) for id in ("before all", "first", "second", "third")}
    assert {id: each.evidence.get("ahead") for id, each in told.items()} == {
        "before all": None,
        "first": 1,
        "second": 2,
        "third": 3,
    }
    assert [each.cause for each in told.values()] == ["moving", "backlog", "backlog", "backlog"]
    assert told["third"].summary == "it waits for its turn on the queue default, behind 3 runs"


async def test_a_suspect_rests_until_a_time(env: Environment) -> None:
    """A run that was alone with workers that died is tried again by itself, after a pause."""
    async with env:
        await env.start(calls_hangs.options(id="a"))
        await env.settle()
        for _ in range(3):
            await env.crash()
            await env.settle()
        told = await explained(env, "a")
        assert told.cause == "suspect"
        assert told.evidence["until"] is not None


async def test_an_owner_that_is_gone_is_told_of(env: Environment) -> None:
    async with client_of(env) as client:
        await env.open()
        await env.start(calls_hangs.options(id="a"))
        await env.settle()
        env.bury()
        told = await explained(client, "a")
        assert told.cause == "owner_lost"
        assert told.evidence["until"] is not None
        assert "`perdure worker MODULE`" in (told.advice or "")


async def test_an_owner_that_hangs_is_told_of(env: Environment) -> None:
    async with client_of(env) as client, env:
        await env.start(calls_hangs.options(id="a"))
        await env.settle()
        env.clock.set_by(60_000)
        told = await explained(client, "a")
        assert told.cause == "owner_stalled"
        assert told.since is not None
        assert "see whether it hangs" in (told.advice or "")


async def test_a_run_that_goes_on_says_so(env: Environment) -> None:
    async with env:
        run = await env.start(gets_a_signal.options(id="a"))
        await env.settle()
        assert (await run.explain()).cause == "moving"


async def test_a_row_that_somebody_holds_is_told_with_the_holder(
    empty_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On Postgres a person who looks at a run with `for update` and goes for lunch stalls it."""
    monkeypatch.setattr("perdure.diagnostics.explain.HELD_SECONDS", 0)
    async with Environment(empty_url) as env:
        run = await env.start(gets_a_signal.options(id="a"))
        await env.pass_time(60)
        async with row_held(empty_url, run.run_id):
            told = await run.explain()
        assert told.cause == "locked"
        assert "(lunch)" in told.summary
        assert (await run.explain()).cause == "signal"


@pytest.mark.parametrize("is_last", [False, True])
def test_what_is_ahead_is_counted_at_the_same_price_however_long_the_queue_is(is_last: bool) -> None:
    """Who asks why a run waits on a queue of 100,000 must not make that queue slower."""
    steps = []
    for many in (1500, 15_000):
        with closing(sqlite3.connect(":memory:")) as db:
            for step in migrations("sqlite"):
                db.executescript(step)
            db.execute(
                "with recursive n (value) as (select 1 union all select value + 1 from n where value < ?)"
                " insert into runs (run_id, namespace, workflow_id, workflow, queue, status, wake_at, seed, created_at,"
                " updated_at) select printf('%06d', value), 'main', value, 'q', 'default', 'PENDING',"
                " value / 10 - 9000, 1, 1, 1 from n",
                (many,),
            )
            db.commit()
            run_id = f"{many if is_last else 1:06}"
            (wake_at,) = db.execute("select wake_at from runs where run_id = ?", (run_id,)).fetchone()
            asked = {"queue": "default", "namespace": "main", "workflows": '["q", "other"]', "priority": 0}
            asked |= {"run_id": run_id, "wake_at": wake_at, "now": 1, "most": 1000}
            steps.append(steps_of(db, asked))
    assert steps[1] <= steps[0] + 20, f"{steps} steps on queues of 1,500 and 15,000"


def steps_of(db: sqlite3.Connection, asked: dict[str, object]) -> int:
    """How much SQLite does to count, in steps of its virtual machine."""
    steps = 0

    def count() -> None:
        nonlocal steps
        steps += 1

    db.set_progress_handler(count, 1)
    db.execute(queries("sqlite")["count_ahead"], asked).fetchall()
    return steps


async def test_a_delayed_signal_that_is_under_way_is_told(env: Environment) -> None:
    """Who is told to send a signal that is under way sends it twice."""
    async with env:
        run = await env.start(gets_a_signal.options(id="a"))
        await env.pass_time(20)
        sent_at = as_moment(env.clock.now())
        await run.signal("stop", 1, delay=60)
        assert "due_at" not in (await run.explain()).evidence
        await run.signal(go, 1, delay=timedelta(hours=2))
        await run.signal(go, 2, delay=timedelta(hours=1))

        told = await run.explain()

        assert told.cause == "signal"
        due_at = told.evidence["due_at"]
        assert isinstance(due_at, datetime)
        assert timedelta(hours=1) <= due_at - sent_at < timedelta(hours=1, minutes=1)
        assert f"one that was sent with a delay comes at {due_at.astimezone():%Y-%m-%d %H:%M:%S %Z}" in told.summary
        assert told.advice is not None
        assert told.advice.startswith("wait until then, or send it: ")
