"""Schedules, end to end: a start per nominal time, whatever workers do meanwhile."""

import asyncio
import logging
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import msgspec
import pytest

from perdure import (
    At,
    BadId,
    BadInput,
    BadOption,
    BadSchedule,
    Cron,
    Every,
    NamespaceNotEmpty,
    Perdure,
    ScheduleExists,
    ScheduleInfo,
    ScheduleNotFound,
    Signal,
    UnknownWorkflow,
    continue_as_new,
    info,
    sleep,
    workflow,
)
from perdure.authoring.options import DEFAULTS
from perdure.authoring.workflow import Workflow
from perdure.kernel.schedules import as_moment
from perdure.stores.operations import Batch, MoveSchedule, NoteDecision
from perdure.testing import Environment, Fault

go_on = Signal("go_on", str)


@workflow
async def tells_its_time(text: str = "") -> list[str | None]:
    known = info()
    return [text, known.schedule, None if known.scheduled_for is None else known.scheduled_for.isoformat()]


@workflow
async def waits_for_long() -> str:
    return await go_on.receive()


@workflow
async def takes_its_time_to_end() -> None:
    try:
        await sleep(3600)
    finally:
        await sleep(300)


@workflow
async def takes_seconds(seconds: int) -> None:
    await sleep(seconds)


@workflow
async def goes_on_once(generation: int = 1) -> str:
    if generation == 1:
        continue_as_new(2)
    return await go_on.receive()


MINUTELY = Every(60)


def beside(env: Environment, **options: Any) -> Environment:
    """Another process on the same database."""
    return Environment(env.path, clock=env.clock, **options)


async def ids(env: Environment, **wanted: Any) -> list[str]:
    return sorted(run.id.partition("T")[2] for run in await env.app.list(**wanted))


async def kinds(env: Environment, name: str) -> list[tuple[str, int]]:
    """What was decided, the oldest first."""
    found = await env.app.schedules.get(name)
    return [(decision.kind, decision.count) for decision in reversed(found.decisions)]


# Starting


async def test_a_schedule_starts_a_run_at_each_of_its_times(env: Environment) -> None:
    """The run knows its nominal time and its schedule, and its id names them."""
    async with env:
        made = await env.app.schedules.create("eu", tells_its_time.call("eu"), MINUTELY)
        await env.pass_time(125)
        runs = {run.id: run for run in await env.app.list(schedule="eu")}
        first, second = (f"eu@{time.isoformat().removesuffix('+00:00')}Z" for time in made.next_times[:2])
        assert sorted(runs) == [first, second]
        run = await env.app.get(first)
        assert await env.result(run) == ["eu", "eu", made.next_times[0].isoformat()]
        shown = await run.describe()
        assert (shown.schedule, shown.scheduled_for) == ("eu", made.next_times[0])
        assert list(await env.app.list(schedule="other")) == []


async def test_a_schedule_says_all_there_is_to_know(env: Environment) -> None:
    async with env:
        made = await env.app.schedules.create("eu", tells_its_time.options(queue="slow").call("eu"), MINUTELY)
        assert made == ScheduleInfo(
            name="eu",
            workflow="tells_its_time",
            arguments={"text": "eu"},
            queue="slow",
            created_at=as_moment(env.clock.now()),
            when=MINUTELY,
            paused=False,
            reason=None,
            next_times=tuple(MINUTELY.times(as_moment(env.clock.now()), 5)),
            last_time=None,
            last_run_id=None,
            waiting=0,
            decisions=(),
            source="api",
        )
        await env.app.schedules.create("asia", tells_its_time.call("asia"), MINUTELY)
        assert [each.name for each in await env.app.schedules.list()] == ["asia", "eu"]
        await env.pass_time(60)
        then = await env.app.schedules.get("eu")
        (run,) = await env.app.list(schedule="eu")
        assert (then.last_time, then.last_run_id) == (made.next_times[0], run.run_id)
        (decision,) = then.decisions
        assert (decision.time, decision.kind, decision.count) == (made.next_times[0], "started", 1)
        assert decision.run_id == run.run_id
        assert then.to_dict()["when"] == {**then.to_dict()["when"], "type": "every"}  # type: ignore[dict-item]  # JSON


async def test_an_at_starts_once(env: Environment) -> None:
    async with env:
        await env.app.schedules.create("once", tells_its_time.call(), At(as_moment(env.clock.now() + 5000)))
        await env.pass_time(3600)
        assert await kinds(env, "once") == [("started", 1)]
        assert (await env.app.schedules.get("once")).next_times == ()


async def test_jitter_moves_the_start_and_not_the_nominal_time(env: Environment) -> None:
    async with env:
        made = await env.app.schedules.create("eu", tells_its_time.call(), Every(3600, jitter=1800))
        await env.pass_time(3600)
        (nominal, following) = made.next_times[:2]
        delay = Every(3600, jitter=1800).delay("eu", nominal, following)
        assert delay > timedelta(seconds=1)
        assert list(await env.app.list(schedule="eu")) == []
        await env.pass_time(delay)
        (run,) = await env.app.list(schedule="eu")
        assert (run.scheduled_for, run.created_at) == (nominal, nominal + delay)


async def test_options_of_the_call_are_those_of_the_runs(env: Environment) -> None:
    async with env:
        wanted = tells_its_time.options(priority=7, entity_id="e-1", attributes={"tenant": "acme"}, timeout=60)
        await env.app.schedules.create("eu", wanted.call(), MINUTELY)
        await env.pass_time(60)
        (run,) = await env.app.list(schedule="eu")
        assert (run.priority, run.entity_id, run.attributes) == (7, "e-1", {"tenant": "acme"})


# Overlap


async def test_what_waits_starts_soon_after_the_end_of_what_is_open(env: Environment) -> None:
    """Also when the worker that let it wait died meanwhile."""
    async with env:
        await env.app.schedules.create("eu", waits_for_long.call(), Every(60, overlap="queue_one"))
        await env.pass_time(190)
        assert await kinds(env, "eu") == [("started", 1), ("queued", 1), ("skipped_overlap", 1)]
        await env.crash()
        await env.settle()
        (first,) = await env.app.list(schedule="eu")
        run = await env.app.get(run_id=first.run_id)
        await run.signal(go_on, "x")
        await env.result(run)
        await env.pass_time(2)
        second, _ = await env.app.list(schedule="eu")
        assert second.scheduled_for is not None
        assert first.scheduled_for is not None
        assert second.scheduled_for == first.scheduled_for + timedelta(minutes=1)
        told = await env.app.schedules.get("eu")
        assert [each.run_id for each in told.decisions if each.kind == "queued"] == [second.run_id]


async def test_queue_all_starts_one_after_the_other(env: Environment) -> None:
    async with env:
        await env.app.schedules.create("eu", takes_seconds.call(90), Every(60, overlap="queue_all"))
        await env.pass_time(200)
        assert (await env.app.schedules.get("eu")).waiting == 1
        await env.app.schedules.update("eu", ends_at=as_moment(env.clock.now() + 1000), interval=1)
        await env.pass_time(600)
        found = await env.app.list(schedule="eu")
        runs = sorted(((run.created_at, run.closed_at) for run in found), key=lambda each: each[0])
        assert len(runs) == 4
        for (_, ended), (began, _) in pairwise(runs):
            assert ended is not None
            assert ended <= began


@pytest.mark.parametrize(("overlap", "status"), [("cancel_old", "CANCELLED"), ("terminate_old", "TERMINATED")])
async def test_the_old_run_is_ended_before_the_new_one_starts(env: Environment, overlap: Any, status: str) -> None:
    async with env:
        await env.app.schedules.create("eu", waits_for_long.call(), Every(60, overlap=overlap))
        await env.pass_time(130)
        new, old = await env.app.list(schedule="eu")
        assert (old.status, new.closed_at) == (status, None)
        assert old.closed_at is not None
        assert old.closed_at <= new.created_at
        assert await kinds(env, "eu") == [("started", 1), ("queued", 1)]


async def test_a_new_holder_asks_old_runs_to_stop_that_the_one_before_did_not_come_to(env: Environment) -> None:
    """It died after it had written that the new run waits, and before it asked: the old one would go on for ever."""

    def dies_having_decided(batch: Batch) -> None:
        if any(isinstance(each, NoteDecision) for group in batch.groups for each in group):
            env.store.before_commit = lambda _: None
            env.store.fail_at(1, Fault.CRASH_AFTER)

    async with env:
        await env.app.schedules.create("eu", waits_for_long.call(), Every(60, overlap="cancel_old"))
        await env.pass_time(70)
        env.store.before_commit = dies_having_decided
        await env.pass_time(60)
        assert env.has_died
        await env.crash()
        # Less than it is to the next time, which would ask them as well.
        await env.pass_time(20)
        new, old = await env.app.list(schedule="eu")
        assert (old.status, new.closed_at) == ("CANCELLED", None)


async def test_a_next_time_that_was_computed_by_other_rules_is_computed_anew(env: Environment) -> None:
    """Rules of zones change: one that is too late is found when a worker opens, one that is too early when it comes."""

    async def next_at() -> int | None:
        row = await env.store.reads.schedules.get("main", "eu")
        assert row is not None
        return row.next_at

    async def compute_by_other_rules(ms: int) -> None:
        row = await env.store.reads.schedules.get("main", "eu")
        assert row is not None
        await env.elsewhere([MoveSchedule(row.schedule_id, row.revision, ms, row.waits, row.body)])

    async with env:
        await env.app.schedules.create("eu", waits_for_long.call(), Every(3600))
        right = await next_at()
        assert right is not None
        await compute_by_other_rules(right + 1_800_000)
        await env.crash()
        await env.settle()
        assert await next_at() == right
        await compute_by_other_rules(env.clock.now() + 5000)
        await env.pass_time(10)
        assert (await next_at(), await kinds(env, "eu")) == (right, [])


async def test_a_backfill_behind_a_run_that_takes_its_time_to_end_is_looked_at_now_and_then(env: Environment) -> None:
    """Old runs were asked to stop in a look that wrote nothing and was due again at once: it never came to an end."""
    async with env:
        when = Every(60, overlap="cancel_old")
        await env.app.schedules.create("eu", takes_its_time_to_end.call(), when)
        await env.pass_time(130)
        assert (await env.app.schedules.get("eu")).waiting == 1
        now = as_moment(env.clock.now())
        await env.app.schedules.backfill("eu", now - timedelta(minutes=9), now - timedelta(minutes=5))
        await env.pass_time(5)
        assert (await env.app.schedules.get("eu")).waiting > 1


async def test_a_run_that_continues_or_was_triggered_is_open_as_well(env: Environment) -> None:
    async with env:
        await env.app.schedules.create("eu", goes_on_once.call(), MINUTELY)
        await env.app.schedules.create("us", waits_for_long.call(), MINUTELY)
        await env.app.schedules.trigger("us")
        await env.pass_time(130)
        assert await kinds(env, "eu") == [("started", 1), ("skipped_overlap", 1)]
        assert await kinds(env, "us") == [("triggered", 1), ("skipped_overlap", 1), ("skipped_overlap", 1)]
        assert len(await env.app.list(schedule="eu")) == 2


# Downtime


async def test_downtime_is_caught_up_as_the_schedule_says(env: Environment) -> None:
    async with env:
        for catch_up in ("latest", "none", "all"):
            when = Every(60, catch_up=catch_up, overlap="allow_all")
            await env.app.schedules.create(catch_up, tells_its_time.call(), when)
        at = At(as_moment(env.clock.now() + 90_000))
        await env.app.schedules.create("at", tells_its_time.call(), at)
        await env.settle()
        env.bury()
        env.clock.advance(5 * 60_000 + 30_000)
        await env.open()
        await env.settle()
        assert await kinds(env, "latest") == [("skipped_missed", 4), ("caught_up", 1)]
        assert await kinds(env, "none") == [("skipped_missed", 5)]
        assert await kinds(env, "all") == [("caught_up", 1)] * 5
        assert await kinds(env, "at") == [("caught_up", 1)]


# Changing


async def test_a_pause_lets_times_pass_and_a_resume_brings_none_back(env: Environment) -> None:
    async with env:
        await env.app.schedules.create("eu", tells_its_time.call(), MINUTELY)
        await env.app.schedules.pause("eu", "the moon")
        paused = await env.app.schedules.get("eu")
        assert (paused.paused, paused.reason) == (True, "the moon")
        await env.pass_time(190)
        await env.app.schedules.resume("eu")
        await env.settle()
        assert await kinds(env, "eu") == [("skipped_paused", 3)]
        await env.pass_time(60)
        assert await kinds(env, "eu") == [("skipped_paused", 3), ("started", 1)]
        assert (await env.app.schedules.get("eu")).reason is None


async def test_an_update_changes_what_is_given_and_the_next_time_at_once(env: Environment) -> None:
    async with env:
        await env.app.schedules.create("eu", tells_its_time.call("a"), Every(3600, overlap="queue_one"))
        then = await env.app.schedules.update("eu", interval=timedelta(minutes=1), within=timedelta(hours=6))
        assert then.when == Every(60, overlap="queue_one", within=6 * 3600)
        await env.app.schedules.update("eu", call=tells_its_time.call("b"))
        await env.pass_time(60)
        (run,) = await env.app.list(schedule="eu")
        assert (await env.result(await env.app.get(run.id)))[0] == "b"  # type: ignore[index]  # a list


async def test_decided_times_stay_decided_when_the_timetable_changes(env: Environment) -> None:
    async with env:
        await env.app.schedules.create("eu", tells_its_time.call(), MINUTELY)
        await env.pass_time(120)
        await env.app.schedules.update("eu", interval=30)
        await env.settle()
        assert await kinds(env, "eu") == [("started", 1)] * 2
        await env.pass_time(30)
        assert await kinds(env, "eu") == [("started", 1)] * 3


async def test_put_makes_or_replaces(env: Environment) -> None:
    async with env:
        await env.app.schedules.put("eu", tells_its_time.call("a"), Every(3600))
        await env.app.schedules.pause("eu")
        then = await env.app.schedules.put("eu", tells_its_time.call("b"), Cron("@daily", "Europe/Berlin"))
        assert (then.when, then.arguments) == (Cron("@daily", "Europe/Berlin"), {"text": "b"})
        assert then.paused


async def test_a_schedule_is_deleted_and_its_runs_go_on(env: Environment) -> None:
    async with env:
        await env.app.schedules.create("eu", takes_seconds.call(90), MINUTELY)
        await env.pass_time(61)
        assert await env.app.schedules.delete("eu")
        assert not await env.app.schedules.delete("eu")
        await env.pass_time(200)
        (run,) = await env.app.list(workflow=takes_seconds)
        assert run.status == "COMPLETED"
        with pytest.raises(ScheduleNotFound, match="no schedule 'eu' exists"):
            await env.app.schedules.get("eu")


# By hand


async def test_a_trigger_starts_a_run_whatever_is_open_and_paused_or_not(env: Environment) -> None:
    async with env:
        await env.app.schedules.create("eu", waits_for_long.call(), Every(3600))
        await env.app.schedules.pause("eu")
        first, second = await env.app.schedules.trigger("eu"), await env.app.schedules.trigger("eu")
        assert first.run_id != second.run_id
        await env.settle()
        assert [run.schedule for run in await env.app.list(schedule="eu")] == ["eu", "eu"]
        assert await kinds(env, "eu") == [("triggered", 1), ("triggered", 1)]


async def test_what_was_triggered_is_the_last_run_of_its_schedule(env: Environment) -> None:
    async with env:
        await env.app.schedules.create("eu", tells_its_time.call(), MINUTELY)
        await env.pass_time(61)
        run = await env.app.schedules.trigger("eu")
        found = await env.app.schedules.get("eu")
        assert (found.last_run_id, found.last_time) == (run.run_id, as_moment(env.clock.now()))
        assert found.decisions[0].run_id == run.run_id


async def test_what_waits_starts_at_once_when_runs_may_overlap_by_now(env: Environment) -> None:
    """Not with the next time, which may be a day away."""
    async with env:
        await env.app.schedules.create("eu", takes_seconds.call(3600), MINUTELY)
        await env.app.schedules.update("eu", overlap="queue_all")
        await env.pass_time(185)
        assert (await env.app.schedules.get("eu")).waiting == 2
        await env.app.schedules.update("eu", overlap="allow_all")
        await env.pass_time(2)
        assert len(await env.app.list(schedule="eu")) == 3


async def test_a_backfill_starts_what_has_no_run_and_survives_a_crash(env: Environment) -> None:
    async with env:
        await env.app.schedules.create("eu", takes_seconds.call(5), MINUTELY)
        await env.pass_time(121)
        began = (await env.app.schedules.get("eu")).created_at
        counts = await env.app.schedules.backfill("eu", began - timedelta(minutes=3), began + timedelta(minutes=2))
        assert (counts.times, counts.existing, counts.accepted) == (6, 2, 4)
        await env.settle()
        await env.crash()
        await env.pass_time(40)
        found = await env.app.list(schedule="eu")
        assert sorted(run.scheduled_for for run in found) == [  # type: ignore[type-var]  # each has one
            began + timedelta(minutes=minute) for minute in range(-3, 3)
        ]
        again = await env.app.schedules.backfill("eu", began - timedelta(minutes=3), began + timedelta(minutes=2))
        assert (again.existing, again.accepted) == (6, 0)


async def test_a_backfill_that_is_too_large_is_refused_with_its_number(env: Environment) -> None:
    async with env:
        await env.app.schedules.create("eu", tells_its_time.call(), MINUTELY)
        now = as_moment(env.clock.now())
        with pytest.raises(BadSchedule, match="20,161 times"):
            await env.app.schedules.backfill("eu", now - timedelta(days=14), now)
        with pytest.raises(BadSchedule, match="in the past"):
            await env.app.schedules.backfill("eu", now, now + timedelta(days=1))
        with pytest.raises(BadSchedule):
            await env.app.schedules.backfill("eu", datetime(2020, 1, 1), now)  # noqa: DTZ001 - on purpose


async def test_counting_a_backfill_that_is_too_large_lets_others_go_on(
    env: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Years of minutes take seconds to count, in which workers would lose their leases."""
    walked = longest = 0
    times_after = Cron.times_after

    def counting(self: Cron, after: datetime) -> Iterator[datetime]:
        nonlocal walked
        for time in times_after(self, after):
            walked += 1
            yield time

    async def others() -> None:
        nonlocal longest
        while True:
            before = walked
            await asyncio.sleep(0)
            longest = max(longest, walked - before)

    async with env:
        await env.app.schedules.create("eu", tells_its_time.call(), Cron("* * * * *"))
        monkeypatch.setattr(Cron, "times_after", counting)
        now = as_moment(env.clock.now())
        watching = asyncio.create_task(others())
        with pytest.raises(BadSchedule, match="100,000 or more times"):
            await env.app.schedules.backfill("eu", now - timedelta(days=365), now)
        watching.cancel()
        assert longest <= 1_000


# In code


def declared(when: Any, name: str = "nightly") -> Workflow[[], Any]:
    """Code of a workflow with a schedule, as one deploy has it."""

    async def nightly() -> str | None:
        return info().schedule

    # Not registered, or every worker of other tests would have it.
    code = Workflow(nightly, name, DEFAULTS)
    code.schedule = when
    return code


async def deployed(env: Environment, *code: Workflow[..., Any]) -> Environment:
    """The same worker with other code."""
    env.bury()
    other = beside(env, workflows=list(code))
    await other.open()
    await other.settle()
    return other


async def test_a_schedule_in_code_is_made_changed_and_removed_with_it(
    env: Environment, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with env:
        await env.app.schedules.create("of people", tells_its_time.call(), Every(3600))
        worker = await deployed(env, declared(Cron("0 2 * * *")), tells_its_time)
        made = await worker.app.schedules.get("nightly")
        assert (made.when, made.source, made.workflow) == (Cron("0 2 * * *"), "code", "nightly")
        await worker.app.schedules.pause("nightly", "by a person")
        worker = await deployed(worker, declared(MINUTELY), tells_its_time)
        changed = await worker.app.schedules.get("nightly")
        assert (changed.when, changed.paused, changed.created_at) == (MINUTELY, True, made.created_at)
        worker = await deployed(worker, tells_its_time)
        assert [each.name for each in await worker.app.schedules.list()] == ["nightly", "of people"]
        worker = await deployed(worker, declared(None), tells_its_time)
        assert [each.name for each in await worker.app.schedules.list()] == ["of people"]
        told = [record.message for record in caplog.records if getattr(record, "event", "") == "schedule_reconciled"]
        assert [text.partition(": ")[2].split()[0] for text in told] == ["made", "changed", "removed"]
        worker.bury()
        await env.open()


async def test_a_client_changes_nothing(env: Environment) -> None:
    async with env:
        client = beside(env, workflows=[declared(MINUTELY)], worker=False)
        async with client:
            assert await client.app.schedules.list() == []


async def test_a_schedule_that_people_made_keeps_its_name(env: Environment, caplog: pytest.LogCaptureFixture) -> None:
    async with env:
        await env.app.schedules.create("nightly", tells_its_time.call(), Every(3600))
        worker = await deployed(env, declared(MINUTELY), tells_its_time)
        assert (await worker.app.schedules.get("nightly")).source == "api"
        assert "one that people made has its name" in caplog.text
        worker.bury()
        await env.open()


async def test_a_run_of_a_schedule_in_code_starts_without_arguments(env: Environment) -> None:
    async with env:
        worker = await deployed(env, declared(MINUTELY))
        await worker.pass_time(60)
        (run,) = await worker.app.list(schedule="nightly")
        assert await worker.result(await worker.app.get(run.id)) == "nightly"
        worker.bury()
        await env.open()


def test_a_workflow_that_needs_arguments_cannot_declare_a_schedule() -> None:
    async def needs(text: str) -> None: ...

    with pytest.raises(BadSchedule, match="give them defaults"):
        workflow(name="needs", schedule=MINUTELY)(needs)
    with pytest.raises(BadSchedule, match="give a Cron"):
        workflow(name="needs", schedule="0 2 * * *")(needs)  # type: ignore[call-overload]  # on purpose


# Several workers


async def test_of_two_that_decide_the_same_time_one_comes_through(env: Environment) -> None:
    """Each has read the schedule before the other wrote it: the second is refused, with its run."""
    async with env, beside(env) as other:
        await env.app.schedules.create("eu", tells_its_time.call(), MINUTELY)
        env.clock.advance(60_000)
        now = env.clock.now()
        (row,) = await env.engine._store.reads.schedules.due("main", now, 9)
        deciders = [each.engine.duties.loops["schedules"]._duty._deciding for each in (env, other)]  # type: ignore[attr-defined]  # ours
        await asyncio.gather(*(decider.decide(row, now) for decider in deciders))
        await env.settle()
        assert len(await env.app.list(schedule="eu")) == 1
        assert await kinds(env, "eu") == [("started", 1)]


async def test_a_change_that_comes_between_reading_and_deciding_is_not_lost(env: Environment) -> None:
    async with env:
        await env.app.schedules.create("eu", tells_its_time.call(), MINUTELY)
        await env.settle()
        env.clock.advance(60_000)
        (row,) = await env.engine._store.reads.schedules.due("main", env.clock.now(), 9)
        await env.app.schedules.pause("eu")
        await env.engine.duties.loops["schedules"]._duty._deciding.decide(row, env.clock.now())  # type: ignore[attr-defined]  # ours
        assert (await env.app.schedules.get("eu")).paused


async def test_an_id_that_somebody_has_taken_counts_as_the_run_of_its_time(env: Environment) -> None:
    async with env:
        made = await env.app.schedules.create("eu", tells_its_time.call(), MINUTELY)
        id = f"eu@{made.next_times[0].isoformat().removesuffix('+00:00')}Z"
        run = await env.start(tells_its_time.options(id=id))
        await env.pass_time(130)
        decisions = (await env.app.schedules.get("eu")).decisions
        assert [each.kind for each in decisions] == ["started", "started"]
        assert decisions[-1].run_id == run.run_id


async def test_a_schedule_that_cannot_be_read_harms_no_other(
    env: Environment, caplog: pytest.LogCaptureFixture
) -> None:
    async with env:
        for name in ("a", "b", "c"):
            await env.app.schedules.create(name, tells_its_time.call(), MINUTELY)
        row = await env.engine._store.reads.schedules.get("main", "b")
        assert row is not None
        body = row.body.replace('"every"', '"never"')
        await env.elsewhere([MoveSchedule(row.schedule_id, row.revision, row.next_at, 0, body)])
        await env.pass_time(125)
        assert (len(await env.app.list(schedule="a")), len(await env.app.list(schedule="c"))) == (2, 2)
        assert "the schedule 'b' cannot be decided" in caplog.text
        assert await env.app.schedules.delete("b")


async def test_a_schedule_of_code_that_cannot_be_read_keeps_no_other_from_being_made(
    env: Environment, caplog: pytest.LogCaptureFixture
) -> None:
    """Its zone may be gone, or a newer version has written it; it stays until somebody deletes it."""
    async with env:
        worker = await deployed(env, declared(MINUTELY, "nightly"))
        row = await worker.engine._store.reads.schedules.get("main", "nightly")
        assert row is not None
        body = row.body.replace('"every"', '"never"')
        await worker.elsewhere([MoveSchedule(row.schedule_id, row.revision, row.next_at, 0, body)])
        worker = await deployed(worker, declared(Cron("0 2 * * *"), "nightly"), declared(MINUTELY, "other"))
        assert (await worker.app.schedules.get("other")).when == MINUTELY
        assert "'nightly' cannot be read" in caplog.text
        assert await worker.app.schedules.delete("nightly")
        worker = await deployed(worker, declared(Cron("0 2 * * *"), "nightly"))
        assert (await worker.app.schedules.get("nightly")).when == Cron("0 2 * * *")
        worker.bury()
        await env.open()


# What is refused, before anything is written


async def test_what_makes_no_sense_is_refused_and_nothing_is_written(env: Environment) -> None:
    async with env:
        schedules, call = env.app.schedules, tells_its_time.call()
        past = as_moment(env.clock.now() - 1000)
        refused: list[tuple[type[Exception], Callable[[], Any]]] = [
            (BadSchedule, lambda: schedules.create("x", call, At(past))),
            (BadSchedule, lambda: schedules.create("x", call, Every(60, ends_at=past))),
            (BadSchedule, lambda: schedules.create("x", call, Cron("0 0 0 1 1 * 2001"))),
            (BadSchedule, lambda: schedules.create("x", call, Cron("*/90 * * * *"))),
            (BadSchedule, lambda: schedules.put("x", call, Cron("*/90 * * * *"))),
            (BadSchedule, lambda: schedules.create("x", call, "0 2 * * *")),  # type: ignore[arg-type]  # on purpose
            (BadId, lambda: schedules.create("", call, MINUTELY)),
            (BadId, lambda: schedules.create("x" * 151, call, MINUTELY)),
            (BadOption, lambda: schedules.create("x", tells_its_time, MINUTELY)),  # type: ignore[arg-type]  # on purpose
            (BadOption, lambda: schedules.create("x", tells_its_time.options(id="1").call(), MINUTELY)),
            (BadSchedule, lambda: schedules.put("x", call, At(past))),
            (ScheduleNotFound, lambda: schedules.update("x", interval=5)),
            (ScheduleNotFound, lambda: schedules.pause("x")),
            (ScheduleNotFound, lambda: schedules.resume("x")),
            (ScheduleNotFound, lambda: schedules.trigger("x")),
            (ScheduleNotFound, lambda: schedules.backfill("x", past, past)),
        ]
        for error, ask in refused:
            with pytest.raises(error):
                await ask()
        assert await schedules.list() == []
        with pytest.raises(BadInput):
            tells_its_time.call(1)  # type: ignore[arg-type]  # on purpose


async def test_a_bad_update_leaves_the_schedule_as_it_was(env: Environment) -> None:
    async with env:
        schedules = env.app.schedules
        made = await schedules.create("eu", tells_its_time.call(), MINUTELY)
        with pytest.raises(ScheduleExists, match="replace it with put"):
            await schedules.create("eu", tells_its_time.call(), MINUTELY)
        refused: list[Callable[[], Any]] = [
            lambda: schedules.update("eu", interval=0),
            lambda: schedules.update("eu", expression="0 2 * * *"),
            lambda: schedules.update("eu", colour="red"),  # type: ignore[call-arg]  # on purpose
            lambda: schedules.update("eu", ends_at=as_moment(env.clock.now() - 1)),
            lambda: schedules.update("eu"),
        ]
        for ask in refused:
            with pytest.raises(BadSchedule):
                await ask()
        assert await schedules.get("eu") == made


async def test_a_worker_refuses_a_schedule_of_code_it_was_not_given(quick_path: Any) -> None:
    async with Perdure(f"sqlite:///{quick_path}/test.db", workflows=[takes_seconds]) as app:
        with pytest.raises(UnknownWorkflow):
            await app.schedules.create("eu", tells_its_time.call(), MINUTELY)


def test_code_that_does_not_await_has_schedules_too(quick_path: Any) -> None:
    with Perdure(f"sqlite:///{quick_path}/test.db").sync() as app:
        made = app.schedules.create("eu", tells_its_time.call("eu"), Every(3600))
        assert app.schedules.list() == [made]
        run = app.schedules.trigger("eu")
        assert run.result(timeout=60) == ["eu", "eu", (run.describe().scheduled_for or datetime.now(UTC)).isoformat()]
        assert app.schedules.update("eu", interval=60).when == MINUTELY
        assert app.schedules.delete("eu")
        assert msgspec.json.encode(app.duties()) == b"[]"


async def test_a_namespace_with_schedules_is_not_deleted(env: Environment) -> None:
    async with env:
        await env.app.namespaces.create("blue")
        async with beside(env, namespace="blue", worker=False) as client:
            await client.app.schedules.create("eu", tells_its_time.call(), MINUTELY)
            with pytest.raises(NamespaceNotEmpty, match=r"1 schedule\(s\)"):
                await env.app.namespaces.delete("blue")
            await client.app.schedules.delete("eu")
        await env.app.namespaces.delete("blue")


async def test_runs_are_found_by_their_schedule_in_a_filter(env: Environment) -> None:
    async with env:
        await env.app.schedules.create("eu", tells_its_time.call(), MINUTELY)
        await env.start(tells_its_time)
        await env.pass_time(60)
        assert len(await env.app.list(where="schedule = 'eu'")) == 1
        assert len(await env.app.list(where="schedule is null and workflow = 'tells_its_time'")) == 1
        assert await env.app.count(where="schedule like 'e%'") == 1
