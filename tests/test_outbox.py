"""Events out, end to end: every change is told at least once, in order for each run, whatever becomes of workers."""

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from perdure import (
    BadInput,
    BadSink,
    Every,
    Log,
    OutboxEvent,
    Perdure,
    Run,
    RunFailed,
    Signal,
    SinkExists,
    SinkFailed,
    SinkInfo,
    SinkNotFound,
    StoreError,
    StoreUnavailable,
    Webhook,
    activity,
    continue_as_new,
    set_attributes,
    sink,
    workflow,
)
from perdure.authoring.sinks import DecoratedSink, sinks
from perdure.engine.duties.finding import SinkFinder
from perdure.engine.outbox import outbox
from perdure.engine.outbox.rows import checked_sink
from perdure.engine.outbox.sinks import NotDelivered, Sink
from perdure.kernel.schedules import as_moment, as_ms
from perdure.stores.operations import Batch, EndGap, MoveSink
from perdure.stores.records import SinkRow
from perdure.stores.rules.outbox_reads import OutboxReads
from perdure.testing import Environment, Fault

SECRET = "a secret that nobody can guess"
go = Signal("outbox_go", str)


@activity
async def outbox_adds(number: int) -> int:
    return number + 1


@activity
async def outbox_breaks() -> None:
    raise ValueError("it broke")


@activity(queue="default")
async def outbox_queued() -> None: ...


@workflow
async def outbox_has_a_task() -> None:
    await outbox_queued()


@activity(queue="default")
async def outbox_queued_text(length: int) -> str:
    return "x" * length


@activity(queue="default")
async def outbox_queued_breaks() -> None:
    raise ValueError("it broke there")


@workflow
async def outbox_has_tasks(length: int) -> None:
    await outbox_queued_text(length)
    await outbox_counts("of a parent")
    await outbox_queued_breaks.options(retry=None)()


@workflow
async def outbox_counts(text: str = "a") -> int:
    set_attributes(text=text[:5])
    return await outbox_adds(1)


@workflow
async def outbox_fails() -> None:
    await outbox_breaks.options(retry=None)()


@workflow
async def outbox_waits() -> str:
    return await go.receive()


@workflow
async def outbox_goes_on(generation: int = 1) -> int:
    if generation == 1:
        continue_as_new(2)
    return generation


@workflow
async def outbox_in_parts() -> int:
    found = await outbox_adds(1)
    await go.receive()
    found = await outbox_adds(found)
    await go.receive()
    return found


@workflow
async def outbox_parent() -> int:
    return await outbox_counts("of a parent")


@workflow
async def outbox_parent_of_late() -> str:
    return await outbox_waits.options(delay=timedelta(hours=1))()


class Recorder:
    """What a sink was told, and what it does not take."""

    def __init__(self) -> None:
        self.told: list[OutboxEvent] = []
        self.tries: list[OutboxEvent] = []
        self.is_broken: Callable[[OutboxEvent], bool] = lambda _: False

    async def take(self, event: OutboxEvent) -> None:
        self.tries.append(event)
        if self.is_broken(event):
            raise ConnectionError("nobody there")
        self.told.append(event)

    def types(self, run_id: str | None = None) -> list[str]:
        return [event.type for event in self.told if run_id in (None, event.run_id)]


def refuses(pause_ms: int = 0, *, is_gone: bool = False) -> Callable[[OutboxEvent], bool]:
    """What a receiver says that asks for a pause, or wants nothing more at all."""

    def refuse(_: OutboxEvent) -> bool:
        raise NotDelivered("not now", pause_ms, is_gone=is_gone)

    return refuse


@pytest.fixture(autouse=True)
def _no_sinks_left() -> Iterator[None]:
    """Sinks come with the code of the process, and would be those of the next test, too."""
    yield
    sinks._known.clear()


@pytest.fixture
def record() -> Iterator[Callable[..., Recorder]]:
    """Makes sinks that remember; they are gone with the test."""
    kept: list[DecoratedSink] = []

    def record(name: str, **options: Any) -> Recorder:
        recorder = Recorder()

        async def take(event: OutboxEvent) -> None:
            await recorder.take(event)

        kept.append(sink(name=name, **{"events": ("run.*", "step.*"), **options})(take))
        return recorder

    yield record
    kept.clear()


async def told(env: Environment, seconds: float = 1) -> None:
    """Let sinks be told what waits, and have it noted; then let time pass, for what is tried again."""
    for each in (1, seconds, 1):
        await env.pass_time(each)


async def info_of(env: Environment, name: str) -> SinkInfo:
    return await env.app.outbox.get(name)


async def test_every_change_of_a_run_is_told_in_order(env: Environment, record: Callable[..., Recorder]) -> None:
    """Starts, steps and ends, with what people want to know of them; and nothing is left waiting."""
    recorder = record("ordered")
    async with env:
        run = await env.start(outbox_counts)
        assert await env.result(run) == 2
        await told(env)
        assert recorder.types() == ["run.started", "step.completed", "run.completed"]
        assert [event.number for event in recorder.told] == [1, 2, 3]
        assert [event.id for event in recorder.told] == [f"{run.run_id}:{number}" for number in (1, 2, 3)]
        last = recorder.told[-1]
        assert (last.workflow, last.workflow_id, last.namespace) == ("outbox_counts", run.id, "main")
        assert last.data["status"] == "COMPLETED"
        assert last.data["attributes"] == {"text": "a"}
        assert "result" not in last.data
        assert recorder.told[1].data["step"] == "outbox_adds"
        found = await info_of(env, "ordered")
        assert (found.state, found.backlog, found.delivered, found.dead) == ("active", 0, 3, 0)


async def test_all_ways_to_end_are_told(env: Environment, record: Callable[..., Recorder]) -> None:
    """Whoever ends a run: its code, a person while nobody owns it, its parent, its successor."""
    recorder = record("ended", events=("run.*",))
    async with env:
        failed = await env.start(outbox_fails)
        gone_on = await env.start(outbox_goes_on)
        parent = await env.start(outbox_parent)
        waiting = await env.start(outbox_waits)
        late = await env.start(outbox_waits.options(delay=timedelta(hours=1)))
        await told(env)
        await late.cancel("not needed")
        await waiting.terminate("enough")
        stopped = await env.start(outbox_waits.options(timeout=2))
        await told(env)
        by_run = {run.run_id: recorder.types(run.run_id) for run in (failed, gone_on, parent, waiting, late, stopped)}
        assert by_run == {
            failed.run_id: ["run.started", "run.failed"],
            gone_on.run_id: ["run.started", "run.continued"],
            parent.run_id: ["run.started", "run.completed"],
            waiting.run_id: ["run.started", "run.terminated"],
            late.run_id: ["run.started", "run.cancelled"],
            stopped.run_id: ["run.started", "run.timed_out"],
        }
        errors = {event.type: event.data["error"] for event in recorder.told}
        assert errors["run.failed"] == {"type": "builtins.ValueError", "message": "it broke"}
        assert errors["run.terminated"] == {"type": None, "message": "enough"}
        # The child and the successor as well.
        assert len(recorder.told) == 2 * 8


async def test_children_that_end_before_they_begin_are_told(env: Environment, record: Callable[..., Recorder]) -> None:
    """No worker ever has them; they end in the transaction of their parent's end."""
    recorder = record("unbegun", events=("run.*",), workflows=("outbox_waits",))
    async with env:
        parent = await env.start(outbox_parent_of_late)
        await told(env)
        await parent.terminate("enough")
        await told(env)
        assert recorder.types() == ["run.started", "run.terminated"]
        assert recorder.told[-1].data["status"] == "TERMINATED"


async def test_waiting_and_held_runs_are_told_when_they_are_asked_for(
    env: Environment, record: Callable[..., Recorder]
) -> None:
    recorder = record("waiting", events=("run.suspended", "run.held"))
    async with env:
        run = await env.start(outbox_waits)
        await told(env, 30)
        await told(env)
        assert recorder.types() == ["run.suspended"]
        await run.pause()
        await told(env)
        assert recorder.types() == ["run.suspended", "run.held"]
        assert recorder.told[-1].data["held"] == "paused"
        assert recorder.told[0].id != recorder.told[1].id


async def test_a_sink_gets_the_workflows_and_values_it_asks_for(
    env: Environment, record: Callable[..., Recorder]
) -> None:
    wanted = record(
        "chosen", workflows=("outbox_counts",), events=("run.started", "run.completed"), include_values=True
    )
    async with env:
        await env.run(outbox_goes_on)
        await env.run(outbox_counts, "b" * 2000)
        await env.run(outbox_counts, "b" * 20_000)
        await told(env)
        assert {event.workflow for event in wanted.told} == {"outbox_counts"}
        first, second, third, fourth = (event.data for event in wanted.told)
        assert first["input"] == {"text": "b" * 2000}
        assert second["result"] == fourth["result"] == 2
        assert third["left_out"] == ["input"]


async def test_what_a_schedule_skips_is_told(env: Environment, record: Callable[..., Recorder]) -> None:
    recorder = record("skipping", events=("schedule.*",))
    async with env:
        await env.app.schedules.create("busy", outbox_waits.call(), Every(60))
        await told(env, 120)
        await told(env)
        assert recorder.types() == ["schedule.skipped"]
        (event,) = recorder.told
        assert (event.run_id, event.workflow) == (None, "outbox_waits")
        assert (event.data["schedule"], event.data["kind"], event.data["count"]) == ("busy", "skipped_overlap", 1)


async def test_what_a_schedule_skips_is_told_of_the_workflows_that_are_asked_for(
    env: Environment, record: Callable[..., Recorder]
) -> None:
    recorder = record("choosy", events=("schedule.*",), workflows=("outbox_waits",))
    async with env:
        await env.app.schedules.create("wanted", outbox_waits.call(), Every(60))
        await env.app.schedules.create("unwanted", outbox_parent_of_late.call(), Every(60))
        await told(env, 120)
        await told(env)
        assert [event.data["schedule"] for event in recorder.told] == ["wanted"]


async def test_a_sink_that_is_behind_is_not_told_what_schedules_skip(
    env: Environment, record: Callable[..., Recorder]
) -> None:
    """However often it is, no more waits than is allowed."""
    record("far", events=("schedule.*",), max_backlog=2)
    async with env:
        await env.app.outbox.pause("far")
        await env.app.schedules.create("busy", outbox_waits.call(), Every(60))
        await told(env, 600)
        found = await info_of(env, "far")
        assert (found.backlog, len((await env.app.schedules.get("busy")).decisions)) == (2, 10)


async def test_activities_on_queues_are_told_as_no_runs_of_their_own(
    env: Environment, record: Callable[..., Recorder]
) -> None:
    """Nobody has started them; neither when they are done nor when events are made anew."""
    recorder = record("all", events=("run.*",))
    async with env:
        run = await env.start(outbox_has_a_task)
        await env.result(run)
        await told(env)
        wanted = ["run.started", "run.completed"]
        assert [(event.run_id, event.type) for event in recorder.told] == [(run.run_id, type) for type in wanted]
        assert await env.app.outbox.resend("all", as_moment(0)) == 2


@pytest.mark.parametrize("length", [3, 200_000])
async def test_activities_on_queues_are_steps_of_the_runs_that_call_them(
    env: Environment, record: Callable[..., Recorder], length: int
) -> None:
    """Each is told once, with what came of it, as if it had run in its run; children of workflows are no steps."""
    recorder = record("steps", events=("step.*",), workflows=("outbox_has_tasks",), include_values=True)
    async with env:
        run = await env.start(outbox_has_tasks, length)
        with pytest.raises(RunFailed, match="it broke there"):
            await env.result(run)
        await told(env)
        first, second = recorder.told
        assert [(event.run_id, event.type) for event in (first, second)] == [
            (run.run_id, "step.completed"),
            (run.run_id, "step.failed"),
        ]
        assert [str(event.data["step"]).partition("#")[0] for event in (first, second)] == [
            "outbox_queued_text",
            "outbox_queued_breaks",
        ]
        assert first.data.get("result", first.data.get("left_out")) == ("xxx" if length == 3 else ["result"])
        assert second.data["error"] == {"type": "builtins.ValueError", "message": "it broke there"}
        assert await env.app.outbox.resend("steps", as_moment(0)) == 2
        await told(env)
        assert recorder.told[2:] == [first, second]


async def test_without_a_sink_nothing_is_written(env: Environment) -> None:
    """And after the last one is gone, nothing again."""
    async with env:
        await env.app.outbox.add("log", Log(), events=("run.*", "step.*"))
        changelog = env.engine._store.reads.changelog
        assert await changelog.listener("outbox.steps") is not None
        await env.app.outbox.update("log", events=("run.*",))
        assert await changelog.listener("outbox.steps") is None
        assert await changelog.listener("outbox") is not None
        assert await env.app.outbox.remove("log")
        assert await changelog.listener("outbox") is None
        assert not await env.app.outbox.remove("log")
        await env.run(outbox_counts)
        await env.app.outbox.add("log", Log(), events=("run.*",))
        assert (await info_of(env, "log")).backlog == 0


async def test_the_log_gets_a_line_for_each_event(env: Environment, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "perdure.events")
    async with env:
        await env.app.outbox.add("log", Log(), events=("run.*",))
        await env.run(outbox_counts.options(id="logged"))
        await told(env)
        lines = [record.getMessage() for record in caplog.records if record.name == "perdure.events"]
        assert lines == ["run.started logged", "run.completed logged"]


async def test_later_events_of_a_run_wait_and_other_runs_do_not(
    env: Environment, record: Callable[..., Recorder]
) -> None:
    """One event that is tried again holds up its run alone; after the last attempt the rest goes on."""
    recorder = record("stubborn", max_attempts=3)
    async with env:
        bad = await env.start(outbox_counts)
        recorder.is_broken = lambda event: event.run_id == bad.run_id and event.type == "run.started"
        await env.result(bad)
        good = await env.start(outbox_counts)
        await env.result(good)
        await told(env)
        assert recorder.types() == ["run.started", "step.completed", "run.completed"]
        assert {event.run_id for event in recorder.told} == {good.run_id}
        await told(env, 10)
        assert recorder.types(bad.run_id) == ["step.completed", "run.completed"]
        assert len([event for event in recorder.tries if event.id == f"{bad.run_id}:1"]) == 3
        (letter,) = await env.app.outbox.dead_letters("stubborn")
        assert (letter.id, letter.attempts, letter.error) == (f"{bad.run_id}:1", 3, "ConnectionError: nobody there")
        found = await info_of(env, "stubborn")
        assert (found.backlog, found.dead, found.delivered) == (0, 1, 5)


async def test_dead_letters_are_delivered_after_all(env: Environment, record: Callable[..., Recorder]) -> None:
    recorder = record("reviving", max_attempts=1, events=("run.completed",))
    recorder.is_broken = lambda _: True
    async with env:
        runs = [await env.start(outbox_counts) for _ in range(3)]
        for run in runs:
            await env.result(run)
        await told(env)
        letters = await env.app.outbox.dead_letters("reviving")
        assert len(letters) == 3
        recorder.is_broken = lambda _: False
        assert await env.app.outbox.replay("reviving", [letters[1].id]) == 1
        await told(env)
        assert [event.id for event in recorder.told] == [letters[1].id]
        assert await env.app.outbox.replay("reviving") == 2
        await told(env)
        assert {event.id for event in recorder.told} == {letter.id for letter in letters}
        assert await env.app.outbox.dead_letters("reviving") == []


async def test_an_event_that_is_refused_for_a_day_is_a_dead_letter(
    env: Environment, record: Callable[..., Recorder]
) -> None:
    """Ten attempts, each after four times the pause before; whoever mends the receiver has it sent after all."""
    recorder = record("patient", events=("run.completed",))
    recorder.is_broken = lambda _: True
    async with env:
        run = await env.start(outbox_counts)
        await env.result(run)
        await told(env, timedelta(hours=20).total_seconds())
        assert (len(recorder.tries), await env.app.outbox.dead_letters("patient")) == (9, [])
        await told(env, timedelta(hours=6).total_seconds())
        (letter,) = await env.app.outbox.dead_letters("patient")
        assert (letter.id, letter.attempts, len(recorder.tries)) == (f"{run.run_id}:3", 10, 10)
        await told(env, timedelta(days=3).total_seconds())
        assert len(recorder.tries) == 10
        recorder.is_broken = lambda _: False
        assert await env.app.outbox.replay("patient") == 1
        await told(env)
        assert [event.id for event in recorder.told] == [letter.id]
        assert await env.app.outbox.dead_letters("patient") == []


async def test_a_sink_that_takes_nothing_is_down_and_tried_with_one_event(
    env: Environment, record: Callable[..., Recorder]
) -> None:
    """An outage uses up nobody's attempts, and ends when one event is taken."""
    recorder = record("outage", events=("run.completed",))
    recorder.is_broken = lambda _: True
    async with env:
        for _ in range(12):
            await env.run(outbox_counts)
        await told(env, 3600)
        found = await info_of(env, "outage")
        assert (found.state, found.backlog, found.dead, found.error) == ("down", 12, 0, "ConnectionError: nobody there")
        tries = len(recorder.tries)
        await told(env, 600)
        assert len(recorder.tries) - tries in {9, 10, 11}
        recorder.is_broken = lambda _: False
        await told(env, 90)
        found = await info_of(env, "outage")
        assert (found.state, found.backlog, found.dead, found.delivered) == ("active", 0, 0, 12)
        assert len({event.id for event in recorder.told}) == 12


async def test_an_outage_uses_up_no_attempts(env: Environment, record: Callable[..., Recorder]) -> None:
    """What is refused once after it has as many attempts left as before."""
    recorder = record("again", events=("run.completed",), max_attempts=3)
    recorder.is_broken = lambda _: True
    async with env:
        for _ in range(5):
            await env.run(outbox_counts)
        await told(env, 3600)
        late = (await env.app.list(limit=1))[0].run_id
        refused: list[str] = []

        def is_broken(event: OutboxEvent) -> bool:
            if event.run_id == late and recorder.told:
                refused.append(event.id)
            return event.run_id == late and len(refused) < 2

        recorder.is_broken = is_broken
        await told(env, 180)
        found = await info_of(env, "again")
        assert (len(refused), found.state, found.delivered, found.dead) == (2, "active", 5, 0)


async def test_a_sink_that_is_down_is_left_alone_for_as_long_as_it_asks(
    env: Environment, record: Callable[..., Recorder]
) -> None:
    recorder = record("busy", events=("run.completed",))
    recorder.is_broken = refuses(600_000)
    async with env:
        for _ in range(8):
            await env.run(outbox_counts)
        await told(env)
        assert (await info_of(env, "busy")).state == "down"
        tries = len(recorder.tries)
        await told(env, 500)
        assert len(recorder.tries) == tries
        await told(env, 100)
        assert len(recorder.tries) == tries + 1


async def test_a_sink_that_is_gone_while_it_is_down_is_paused(
    env: Environment, record: Callable[..., Recorder]
) -> None:
    """A receiver that breaks and is then taken away for good is not asked for ever."""
    recorder = record("closed", events=("run.completed",))
    recorder.is_broken = lambda _: True
    async with env:
        for _ in range(6):
            await env.run(outbox_counts)
        await told(env)
        assert (await info_of(env, "closed")).state == "down"
        recorder.is_broken = refuses(is_gone=True)
        await told(env, 120)
        found = await info_of(env, "closed")
        assert (found.state, found.reason, found.backlog) == ("paused", "not now", 6)
        tries = len(recorder.tries)
        await told(env, 600)
        assert len(recorder.tries) == tries


async def test_five_that_are_never_taken_do_not_stop_the_others(
    env: Environment, record: Callable[..., Recorder]
) -> None:
    """They look like an outage until another one is tried; then each uses up its own attempts."""
    recorder = record("picky", events=("run.completed",), max_attempts=2)
    recorder.is_broken = lambda event: event.workflow == "outbox_goes_on"
    async with env:
        for _ in range(6):
            await env.run(outbox_goes_on)
        await told(env)
        for _ in range(3):
            await env.run(outbox_counts)
        await told(env, 600)
        found = await info_of(env, "picky")
        assert (found.state, found.delivered, found.dead, found.backlog) == ("active", 3, 6, 0)


async def test_a_paused_sink_gets_what_came_meanwhile(env: Environment, record: Callable[..., Recorder]) -> None:
    recorder = record("paused", events=("run.*",))
    async with env:
        await env.app.outbox.pause("paused", "they move house")
        await env.run(outbox_counts)
        await told(env)
        found = await info_of(env, "paused")
        assert (found.state, found.reason, found.backlog, recorder.told) == ("paused", "they move house", 2, [])
        await env.app.outbox.resume("paused")
        await told(env)
        assert recorder.types() == ["run.started", "run.completed"]


async def test_a_sink_that_is_paused_is_sent_nothing_more_of_what_was_read_already(env: Environment) -> None:
    """A slow one has hundreds in memory, and somebody pauses it since they do harm; what was taken is noted."""
    may_go = asyncio.Semaphore(0)
    began: list[str | None] = []

    @sink(name="harmed", events=("run.completed",), concurrency=2)
    async def harmed(event: OutboxEvent) -> None:
        began.append(event.run_id)
        await may_go.acquire()

    async with env:
        for _ in range(10):
            await env.run(outbox_counts)
        await told(env)
        assert len(began) == 2
        await env.app.outbox.pause("harmed", "they do harm")
        await told(env)
        for _ in range(10):
            may_go.release()
        await told(env)
        found = await info_of(env, "harmed")
        assert (len(began), found.state, found.delivered, found.backlog) == (2, "paused", 2, 8)
        await env.app.outbox.resume("harmed")
        await told(env)
        assert (len(set(began)), (await info_of(env, "harmed")).backlog) == (10, 0)


async def test_a_sink_that_is_down_is_paused_when_it_is_gone(env: Environment, record: Callable[..., Recorder]) -> None:
    """One that fails before it is taken away answers 410 to an event that only tries it."""
    recorder = record("left", events=("run.completed",))
    trouble: Exception = ConnectionError("nobody there")

    def is_broken(_: OutboxEvent) -> bool:
        raise trouble

    recorder.is_broken = is_broken
    async with env:
        for _ in range(6):
            await env.run(outbox_counts)
        await told(env)
        assert (await info_of(env, "left")).state == "down"
        trouble = NotDelivered("the answer was 410", is_gone=True)
        await told(env, 120)
        found = await info_of(env, "left")
        assert (found.state, found.reason, found.backlog) == ("paused", "the answer was 410", 6)


async def test_a_sink_that_is_down_is_tried_after_a_day_whatever_pause_it_asks_for(
    env: Environment, record: Callable[..., Recorder]
) -> None:
    recorder = record("modest", events=("run.completed",))
    is_back = False

    def is_broken(_: OutboxEvent) -> bool:
        if not is_back:
            raise NotDelivered("the answer was 503", pause_ms=100 * 365 * 86_400_000)
        return False

    recorder.is_broken = is_broken
    async with env:
        for _ in range(6):
            await env.run(outbox_counts)
        await told(env)
        assert (await info_of(env, "modest")).state == "down"
        is_back = True
        await told(env, 86_400)
        await told(env)
        found = await info_of(env, "modest")
        assert (found.state, found.delivered) == ("active", 6)


async def test_a_sink_that_is_behind_is_told_of_the_gap(env: Environment, record: Callable[..., Recorder]) -> None:
    """Nothing more waits than is allowed; what is missing can be sent anew, under the ids it would have had."""
    recorder = record("slow", events=("run.completed",), max_backlog=4)
    async with env:
        await env.app.outbox.pause("slow")
        runs = [await env.start(outbox_counts) for _ in range(10)]
        for run in runs:
            await env.result(run)
        found = await info_of(env, "slow")
        assert found.backlog < 10
        await env.app.outbox.resume("slow")
        await told(env)
        completed = [event for event in recorder.told if event.type == "run.completed"]
        gap = recorder.told[-1]
        assert (gap.type, len(completed), gap.run_id) == ("outbox.gap", found.backlog, None)
        since: Any = gap.data["since"]
        assert await env.app.outbox.resend("slow", since - timedelta(hours=1)) == 10
        await told(env)
        assert {event.id for event in recorder.told} - {gap.id} == {f"{run.run_id}:3" for run in runs}
        assert (await info_of(env, "slow")).state == "active"


async def test_hardly_more_waits_for_a_sink_than_may(env: Environment, record: Callable[..., Recorder]) -> None:
    """It is counted now and then: soon enough that not even a twentieth too much has come."""
    record("counted", events=("run.started",), max_backlog=60)
    async with env:
        await env.app.outbox.pause("counted")
        for _ in range(35):
            await env.app.start_many(*[outbox_waits.options(delay=3600).call() for _ in range(2)])
        assert 57 < (await info_of(env, "counted")).backlog <= 61


async def test_a_sink_is_behind_until_half_of_what_waited_is_delivered(
    env: Environment, record: Callable[..., Recorder]
) -> None:
    """Else it would be behind again with the next event, and get a gap for each."""
    recorder = record("half", events=("run.started",), max_backlog=4)
    async with env:
        await env.app.outbox.pause("half")
        first, *_ = [await env.start(outbox_waits) for _ in range(4)]
        recorder.is_broken = lambda event: event.run_id != first.run_id
        await env.app.outbox.resume("half")
        await told(env)
        found = await info_of(env, "half")
        assert (found.state, found.backlog, found.delivered) == ("behind", 3, 1)
        recorder.is_broken = lambda _: False
        await told(env, 5)
        await told(env)
        assert (await info_of(env, "half")).state == "active"
        assert recorder.types() == ["run.started"] * 4 + ["outbox.gap"]


async def test_a_gap_spans_what_is_written_until_it_is_told(env: Environment, record: Callable[..., Recorder]) -> None:
    """What another process writes between the look and the end of the gap is missing, too."""
    recorder = record("gapped", events=("run.started",), max_backlog=4)
    runs: list[Run[Any]] = []

    async def before_the_end(batch: Batch) -> None:
        if any(isinstance(operation, EndGap) for group in batch.groups for operation in group):
            env.store.before_commit = lambda _: None
            env.clock.advance(2000)
            runs.append(await beside.start(outbox_waits))

    async with env, Environment(env.path, clock=env.clock, worker=False) as beside:
        await env.app.outbox.pause("gapped")
        for _ in range(10):
            runs.append(await env.start(outbox_waits))
            await env.pass_time(1)
        assert (await info_of(env, "gapped")).backlog < 10
        env.store.before_commit = before_the_end
        await env.app.outbox.resume("gapped")
        await told(env)
        (gap,) = (event for event in recorder.told if event.type == "outbox.gap")
        assert len(runs) == 11
        since, until = gap.data["since"], gap.data["until"]
        assert isinstance(since, datetime)
        assert isinstance(until, datetime)
        await env.app.outbox.resend("gapped", since, until)
        await told(env)
        assert {event.run_id for event in recorder.told} == {run.run_id for run in runs} | {None}


async def test_times_that_are_skipped_in_a_row_are_told_under_ids_of_their_own(
    env: Environment, record: Callable[..., Recorder]
) -> None:
    """A receiver that remembers ids would take the second for the first that came again."""
    recorder = record("skips_in_a_row", events=("schedule.skipped",))
    async with env:
        await env.app.schedules.create("late", outbox_counts.call(), Every(60, catch_up="none"))
        for _ in range(2):
            env.clock.advance(90_000)
            await told(env)
        found = await env.app.schedules.get("late")
        counts: list[Any] = [event.data["count"] for event in recorder.told]
        assert len(counts) == len({event.id for event in recorder.told}) >= 2, found.decisions
        assert counts == sorted(counts)


async def test_a_sink_that_cannot_be_read_harms_no_other(
    env: Environment, record: Callable[..., Recorder], caplog: pytest.LogCaptureFixture
) -> None:
    """While a deploy rolls a newer version may have written what this one does not know."""
    recorders = [record(name, events=("run.completed",)) for name in ("a_first", "b_newer", "c_last")]
    async with env:
        row = await env.engine._store.reads.outbox.sink("main", "b_newer")
        assert row is not None
        body = row.body.replace('"function"', '"telepathy"')
        await env.elsewhere([MoveSink(row.sink_id, row.revision, row.types, row.workflows, row.max_backlog, body)])
        await env.crash()
        await env.run(outbox_counts)
        await told(env)
        assert [recorder.types() for recorder in recorders] == [["run.completed"], [], ["run.completed"]]
        assert "the sink 'b_newer' is told nothing" in caplog.text
        with pytest.raises(StoreError, match="'b_newer' cannot be read.*remove it"):
            await env.app.outbox.list()
        assert await env.app.outbox.remove("b_newer")
        assert [found.name for found in await env.app.outbox.list()] == ["a_first", "c_last"]


async def test_events_are_made_anew_from_histories(env: Environment, record: Callable[..., Recorder]) -> None:
    """A new consumer gets the past: the same events with the same ids, in order, of the time it asks for."""
    async with env:
        runs = [await env.start(outbox_counts), await env.start(outbox_fails)]
        await told(env)
        then = env.clock.now()
        await told(env)
        runs.append(await env.start(outbox_counts))
        await told(env)
        recorder = record("newcomer", events=("run.*", "step.*"))
        assert recorder.told == []
        await env.crash()
        made = await env.app.outbox.resend("newcomer", as_moment(0), as_moment(then))
        await told(env)
        assert made == len(recorder.told) == 6
        assert recorder.types(runs[0].run_id) == ["run.started", "step.completed", "run.completed"]
        assert recorder.types(runs[1].run_id) == ["run.started", "step.failed", "run.failed"]
        assert await env.app.outbox.resend("newcomer", as_moment(then + 1)) == 3


async def test_of_a_time_what_was_told_then_is_made_anew_and_nothing_else(
    env: Environment, record: Callable[..., Recorder], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a run that was open before and after, of the workflows the sink wants, of a fork what is its own; in bites."""
    monkeypatch.setattr(outbox, "BITE", 2)
    recorder = record("choosy", events=("run.*", "step.*"), workflows=("outbox_counts", "outbox_in_parts"))
    async with env:
        run = await env.start(outbox_in_parts)
        await told(env)
        since = env.clock.now()
        await run.signal(go, "on")
        for _ in range(3):
            await env.run(outbox_counts)
            await env.run(outbox_goes_on)
        await told(env)
        until = env.clock.now()
        await told(env)
        await run.signal(go, "on")
        await env.result(run)
        fork = await run.fork(at=4, id="forked")
        for _ in range(2):
            await fork.signal(go, "on")
        await env.result(fork)
        await told(env)
        first = {event.id: event for event in recorder.told}
        in_time = [event.id for event in recorder.told if since <= as_ms(event.at) <= until]
        assert 0 < len(in_time) < len(first) == len(recorder.told)
        assert await env.app.outbox.resend("choosy", as_moment(since), as_moment(until)) == len(in_time)
        await told(env)
        again = recorder.told[len(first) :]
        assert sorted(event.id for event in again) == sorted(in_time)
        assert await env.app.outbox.resend("choosy", as_moment(0)) == len(first)
        await told(env)
        anew = recorder.told[len(first) + len(again) :]
        assert {(event.id, event.type, event.at, event.number) for event in anew} == {
            (event.id, event.type, event.at, event.number) for event in first.values()
        }


async def test_dead_letters_are_found_by_their_ids_however_many_there_are(
    env: Environment, record: Callable[..., Recorder], monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are looked through in bites; those of another sink, and what was tried before, count for nothing."""
    monkeypatch.setattr(outbox, "BITE", 2)
    recorder = record("reviving", max_attempts=2, events=("run.completed",))
    other = record("not_meant", max_attempts=1, events=("run.completed",))
    recorder.is_broken = lambda _: len(recorder.tries) % 3 != 0
    other.is_broken = lambda _: len(other.tries) % 3 != 0
    async with env:
        for _ in range(16):
            await env.run(outbox_counts)
            await told(env)
        letters = await env.app.outbox.dead_letters("reviving")
        of_other = await env.app.outbox.dead_letters("not_meant")
        assert len(letters) >= 5
        assert len(of_other) >= 2
        assert [letter.id for letter in await env.app.outbox.dead_letters("reviving", limit=2)] == [
            letter.id for letter in letters[:2]
        ]
        recorder.is_broken = lambda _: True
        assert await env.app.outbox.replay("reviving", [letters[-1].id, "unknown"]) == 1
        tries = len(recorder.tries)
        await env.pass_time(0.2)
        # It has as many attempts as before.
        assert len(recorder.tries) == tries + 1
        assert await env.app.outbox.dead_letters("reviving") == letters[:-1]
        recorder.is_broken = lambda _: False
        assert await env.app.outbox.replay("reviving") == len(letters) - 1
        await told(env, 10)
        assert await env.app.outbox.dead_letters("reviving") == []
        assert {letter.id for letter in letters} <= {event.id for event in recorder.told}
        assert await env.app.outbox.dead_letters("not_meant") == of_other


async def test_a_sink_of_code_that_was_paused_stays_so_when_it_is_deployed_anew(
    env: Environment, record: Callable[..., Recorder]
) -> None:
    """Who has paused it knows why; what the code says otherwise is taken over."""
    recorder = record("kept_paused", events=("run.completed",))
    async with env:
        await env.app.outbox.pause("kept_paused", "they move house")
        made = await info_of(env, "kept_paused")
        sinks._known.pop("kept_paused")
        recorder = record("kept_paused", events=("run.started",), max_attempts=3)
        await env.crash()
        found = await info_of(env, "kept_paused")
        assert (found.state, found.reason, found.created_at) == ("paused", "they move house", made.created_at)
        assert (found.events, found.max_attempts) == (("run.started",), 3)
        await env.run(outbox_counts)
        await told(env)
        assert recorder.tries == []
        await env.app.outbox.resume("kept_paused")
        await told(env)
        assert recorder.types() == ["run.started"]


async def test_what_was_sent_and_not_noted_is_sent_again_after_a_crash(
    env: Environment, record: Callable[..., Recorder]
) -> None:
    """At least once: a worker that dies between the two leaves the event to the next one."""
    recorder = record("crashing", events=("run.*",))
    async with env:
        run = await env.start(outbox_counts)
        await env.result(run)
        await env.settle()
        before = len(recorder.told)
        await env.crash()
        await told(env)
        await told(env)
        found = recorder.types(run.run_id)
        assert found == ["run.started", "run.completed"] * (1 + bool(before))
        assert (await info_of(env, "crashing")).backlog == 0


async def test_what_was_sent_is_noted_before_a_worker_ends(env: Environment, record: Callable[..., Recorder]) -> None:
    """A deploy is no crash: nobody is told twice because of it."""
    recorder = record("deployed", events=("run.*",))
    async with env:
        await env.app.outbox.pause("deployed")
        run = await env.start(outbox_counts)
        await env.result(run)
        await env.app.outbox.resume("deployed")
        while len(recorder.told) < 2:
            await env.pass_time(0.01)
        assert (await info_of(env, "deployed")).backlog == 2
    async with Environment(env.path, clock=env.clock) as other:
        assert (await info_of(other, "deployed")).backlog == 0
        await told(other)
        assert recorder.types(run.run_id) == ["run.started", "run.completed"]


async def test_what_follows_a_dead_letter_waits_until_that_is_noted(
    env: Environment, record: Callable[..., Recorder]
) -> None:
    """A worker that dies before it has noted it leaves both events to the next one, which takes them in order."""
    recorder = record("given_up", events=("run.*",), max_attempts=1)

    def dies_with_the_first(_: OutboxEvent) -> bool:
        if len(recorder.tries) == 1:
            env.store.fail_at(1, Fault.CRASH_BEFORE)
        return len(recorder.tries) == 1

    async with env:
        await env.app.outbox.pause("given_up")
        run = await env.start(outbox_counts)
        await env.result(run)
        recorder.is_broken = dies_with_the_first
        await env.app.outbox.resume("given_up")
        await told(env)
        assert env.has_died
        await env.crash()
        await told(env)
        await told(env)
        assert recorder.types(run.run_id) == ["run.started", "run.completed"]
        assert (await info_of(env, "given_up")).dead == 0


async def test_one_worker_sends_and_another_takes_over(env: Environment, record: Callable[..., Recorder]) -> None:
    recorder = record("shared", events=("run.completed",))
    async with env, Environment(env.path, clock=env.clock) as other:
        for _ in range(3):
            await env.run(outbox_counts)
        await told(env)
        duties = {duty.name: duty.holder for duty in await env.app.duties()}
        assert duties["sink:shared"] in {env.engine.worker_id, other.engine.worker_id}
        assert len(recorder.told) == len({event.id for event in recorder.told}) == 3


async def test_a_slow_run_does_not_hold_up_the_others(env: Environment) -> None:
    released = asyncio.Event()
    names: list[str] = []

    @sink(name="hanging", events=("run.completed",), concurrency=2)
    async def hangs(event: OutboxEvent) -> None:
        if event.workflow == "outbox_goes_on":
            await released.wait()
        names.append(event.workflow or "")

    async with env:
        await env.run(outbox_goes_on)
        await told(env)
        for _ in range(5):
            await env.run(outbox_counts)
        await told(env)
        assert names == ["outbox_counts"] * 5
        assert (await info_of(env, "hanging")).backlog == 1
        released.set()
        await told(env)
        assert (await info_of(env, "hanging")).backlog == 0
        assert hangs.name == "hanging"


async def test_as_many_runs_are_told_at_once_as_the_sink_says_and_it_is_noted_at_once(env: Environment) -> None:
    under_way: list[str] = []
    most = 0
    may_end = asyncio.Event()

    @sink(name="narrow", events=("run.completed",), concurrency=2)
    async def takes(event: OutboxEvent) -> None:
        nonlocal most
        under_way.append(event.id)
        most = max(most, len(under_way))
        await may_end.wait()
        under_way.remove(event.id)

    async with env:
        for _ in range(5):
            await env.run(outbox_counts)
        await told(env)
        assert (len(under_way), most) == (2, 2)
        may_end.set()
        await env.pass_time(0.1)
        assert (most, (await info_of(env, "narrow")).backlog) == (2, 0)


async def test_a_plain_function_is_called_in_a_thread(env: Environment) -> None:
    names: list[str] = []

    @sink(name="plain", events=("run.started",))
    def plain(event: OutboxEvent) -> None:
        names.append(event.type)

    async with env:
        await env.run(outbox_counts)
        await env.app.outbox.test("plain")
        assert "outbox.test" in names
        assert plain.origin


async def test_a_process_that_lives_for_a_call_sends_what_waits(
    record: Callable[..., Recorder], quick_path: Path
) -> None:
    """`tick` does it once: what is due is sent and noted before it returns."""
    recorder = record("brief", events=("run.*",))
    url = f"sqlite:///{quick_path}/a.db"
    async with Perdure(url) as app:
        await app.outbox.pause("brief")
        await app.run(outbox_counts)
    async with Perdure(url, worker=False) as app:
        await app.outbox.resume("brief")
        tick = await app.tick(budget=20)
        assert (tick.counts["delivered"], tick.errors) == (2, {})
        assert recorder.types() == ["run.started", "run.completed"]
        assert (await app.outbox.get("brief")).backlog == 0


async def test_a_sink_that_is_made_while_sinks_are_looked_for_is_found(
    env: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What that look has read is older, and it may be long until somebody else brings about the next one."""
    read, is_read, made = OutboxReads.sinks, asyncio.Event(), asyncio.Event()

    async def answered_late(self: OutboxReads, namespace: str) -> list[SinkRow]:
        found = await read(self, namespace)
        is_read.set()
        if not found:
            await made.wait()
        return found

    async with env:
        await env.settle()
        monkeypatch.setattr(OutboxReads, "sinks", answered_late)
        env.engine.duties.look()
        await is_read.wait()
        await env.app.outbox.add("late", Log(), events=("run.completed",))
        made.set()
        await env.settle()
        assert "sink:late" in env.engine.duties.loops


async def test_a_read_that_fails_half_way_leaves_no_run_behind(
    env: Environment, record: Callable[..., Recorder], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was about to be sent is sent when the database is there again, and not taken for being under way."""
    recorder = record("unread", events=("run.completed", "run.failed"))
    read, failures = OutboxReads.values, [StoreUnavailable(str(env.path), "away for a moment")]

    async def fails_once(self: OutboxReads, numbers: Sequence[int]) -> dict[int, str]:
        if failures:
            raise failures.pop()
        return await read(self, numbers)

    async with env:
        await env.run(outbox_counts)
        await told(env)
        monkeypatch.setattr(OutboxReads, "values", fails_once)
        run = await env.start(outbox_fails)
        await told(env, 5)
        assert failures == []
        assert recorder.types(run.run_id) == ["run.failed"]


async def test_what_was_broken_off_and_takes_its_time_to_end_holds_up_nothing(env: Environment) -> None:
    """A worker that takes a duty anew breaks off what is under way; when that has ended, the next has its place."""
    names: list[str] = []
    ended = asyncio.Event()

    @sink(name="slow_to_end", events=("run.completed",), concurrency=1)
    async def slow_to_end(event: OutboxEvent) -> None:
        names.append(event.id)
        if len(names) == 1:
            try:
                await asyncio.Event().wait()
            finally:
                await ended.wait()

    async with env:
        await env.run(outbox_counts)
        await told(env)
        assert len(names) == 1
        loop = env.engine.duties.loops["sink:slow_to_end"]
        loop._held_as = ""
        loop.look()
        await told(env)
        ended.set()
        await told(env, 5)
        assert names == [names[0]] * 2
        assert (await info_of(env, "slow_to_end")).backlog == 0


async def test_it_is_looked_for_events_a_moment_after_a_write(env: Environment) -> None:
    """Many writes follow on each other, and are one look; without the pause each would be one."""
    async with env:
        await env.app.outbox.add("calm", Log(), events=("run.started",))
        await told(env)
        await env.start(outbox_waits)
        await env.settle()
        due_in = env.clock.due_in(lambda callback: getattr(callback, "__func__", None) is not SinkFinder.wake)
        assert due_in is not None
        assert 10 <= due_in <= 100


async def test_names_are_taken_once_and_found(env: Environment) -> None:
    async with env:
        await env.app.outbox.add("crm", Webhook("https://crm.example/hook", secret=SECRET), events=("run.*",))
        with pytest.raises(SinkExists, match="update"):
            await env.app.outbox.add("crm", Log(), events=("run.*",))
        assert [found.name for found in await env.app.outbox.list()] == ["crm"]
        assert SECRET not in repr(await env.app.outbox.list())
        await env.app.outbox.update("crm", target=Webhook("https://crm.example/b", secret=("env:NEW", SECRET)))
        assert (await info_of(env, "crm")).target == Webhook("https://crm.example/b", secret=("env:NEW", "***"))
        for asked in (
            env.app.outbox.pause("nobody"),
            env.app.outbox.test("nobody"),
            env.app.outbox.dead_letters("nobody"),
            env.app.outbox.replay("nobody"),
            env.app.outbox.resend("nobody", as_moment(0)),
            env.app.outbox.get("nobody"),
        ):
            with pytest.raises(SinkNotFound, match="nobody"):
                await asked
        await env.app.outbox.pause("crm")


async def test_a_sink_without_code_here_says_so(env: Environment) -> None:
    left = sink(name="left", events=("run.*",))(outbox_takes)
    async with env:
        sinks._known.pop(left.name)
        with pytest.raises(SinkFailed, match="no code"):
            await env.app.outbox.test("left")


async def test_a_kept_webhook_that_would_not_be_taken_today_is_shown_and_harms_no_other(
    env: Environment, record: Callable[..., Recorder]
) -> None:
    """Rules become stricter: what was taken by older ones is listed, says why it is sent nothing, and is paused."""
    recorder = record("other", events=("run.completed",))
    async with env:
        kept = Webhook("https://10.0.0.1:9/hook", secret="env:NEVER", allow_private=True)
        await env.app.outbox.add("older", kept, events=("run.completed",))
        row = await env.engine._store.reads.outbox.sink("main", "older")
        assert row is not None
        body = row.body.replace(',"allow_private":true', "")
        assert body != row.body
        await env.elsewhere([MoveSink(row.sink_id, row.revision, row.types, row.workflows, row.max_backlog, body)])
        runs = [await env.start(outbox_counts) for _ in range(5)]
        await told(env)
        assert {event.run_id for event in recorder.told} == {run.run_id for run in runs}
        found, other = await env.app.outbox.list()
        assert (found.name, found.state, found.backlog, other.state) == ("older", "down", 5, "active")
        assert found.target == Webhook("https://10.0.0.1:9/hook", secret="env:NEVER")
        assert "private address 10.0.0.1" in str(found.error)
        with pytest.raises(SinkFailed, match="private address"):
            await env.app.outbox.test("older")
        with pytest.raises(BadSink, match="private address"):
            await env.app.outbox.update("older", concurrency=2)
        await env.app.outbox.pause("older", "it is not to be reached")
        assert (await info_of(env, "older")).state == "paused"
        assert await env.app.outbox.remove("older")


def given(target: Webhook) -> Sink:
    """A sink as it is made when somebody asks for one."""
    return checked_sink(Sink(target, ("run.*",)))


async def outbox_takes_two(event: OutboxEvent, other: int) -> None:
    """Never called."""


async def outbox_takes(event: OutboxEvent) -> None:
    """Never called."""


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (lambda: Webhook("http://crm.example", secret=SECRET), "https"),
        (lambda: given(Webhook("https://127.0.0.1/hook", secret=SECRET)), "private"),
        (lambda: given(Webhook("https://localhost/hook", secret=SECRET)), "private"),
        (lambda: given(Webhook("https://[::ffff:10.0.0.1]/", secret=SECRET)), "private"),
        (lambda: Webhook("https://me:pw@crm.example/", secret=SECRET), "account"),
        (lambda: Webhook("https://crm.example", secret="too short"), "24 bytes"),
        (lambda: Webhook("https://crm.example", secret="whsec_!!"), "base64"),
        (lambda: Webhook("https://crm.example", secret="env:"), "environment"),
        (lambda: sink(events=("run.begun",)), "no event 'run.begun'"),
        (lambda: sink(events=()), "which events"),
        (lambda: sink(events="run.*"), "sequence"),
        (lambda: sink(events=("run.*",), max_attempts=0), "no sink"),
        (lambda: sink(events=("run.*",))(outbox_takes_two), "one argument"),  # type: ignore[arg-type]  # that is the point
    ],
)
def test_bad_sinks_are_refused(wrong: Callable[[], object], said: str) -> None:
    with pytest.raises(BadInput, match=said):
        wrong()


async def test_bad_changes_are_refused(env: Environment) -> None:
    async with env:
        outbox: Any = env.app.outbox
        await outbox.add("log", Log(), events=("run.*",))
        for wrong in (
            outbox.update("log", colour="red"),
            outbox.update("log"),
            outbox.update("log", events=("no.such",)),
            outbox.update("log", concurrency=0),
            outbox.add("other", "https://crm.example", events=("run.*",)),
            outbox.resend("log", 12),
            outbox.replay("log", "an id"),
        ):
            with pytest.raises(BadSink):
                await wrong
