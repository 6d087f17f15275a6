"""Duties: one worker does it for all; who that is moves with workers, and nothing rests on it."""

import pytest

from perdure import Every, workflow
from perdure.engine.duties.duties import STALE_MS, DutyLoop, DutyLost
from perdure.stores.answers import Applied, Committed, Moved
from perdure.stores.operations import TakeDuty
from perdure.testing import Environment


@workflow
async def does_nothing() -> None: ...


def beside(env: Environment) -> Environment:
    """Another process on the same database."""
    return Environment(env.path, clock=env.clock)


async def holder_of(env: Environment) -> str | None:
    (duty,) = await env.app.duties()
    return duty.holder


class Broken:
    """A duty that always has something to do, and fails at it as often as it is told."""

    name = "broken"

    def __init__(self) -> None:
        self.failures = 0
        self.error: Exception = ValueError("not now")
        self.since = 0
        self.ticks: list[bool] = []

    async def due_at(self, namespace: str, now: int) -> int | None:
        return self.since

    async def tick(self, namespace: str, now: int, *, is_first: bool) -> None:
        if self.failures:
            self.failures -= 1
            raise self.error
        self.ticks.append(is_first)


class Overlooked:
    """A duty that has something to do from the moment on at which it has just found that there was nothing."""

    name = "overlooked"

    def __init__(self) -> None:
        self.loop: DutyLoop | None = None
        self.due: int | None = None
        self.ticks = 0

    async def due_at(self, namespace: str, now: int) -> int | None:
        found = self.due
        if self.loop is not None:
            self.due = now
            self.loop.look()
            self.loop = None
        return found

    async def tick(self, namespace: str, now: int, *, is_first: bool) -> None:
        self.ticks += 1
        self.due = None


def begin(env: Environment, duty: Broken) -> DutyLoop:
    """Let a process take part in a duty."""
    env.engine.duties.add(duty)
    loop = env.engine.duties.loops[duty.name]
    loop.begin("main")
    return loop


async def give_away(env: Environment, worker_id: str) -> None:
    """Let another worker have the duty that this one has, without a word to it."""
    now = env.clock.now()
    outcome = await env.elsewhere([TakeDuty("main", "broken", worker_id, now, now)])
    assert isinstance(outcome, Committed)
    assert outcome.answers.get(0, Applied()) == Applied()


async def test_without_schedules_nobody_has_an_alarm_or_a_row(env: Environment) -> None:
    """An idle database costs a worker nothing that it did not cost before."""
    async with env:
        await env.pass_time(10)
        assert env.engine.duties.loops["schedules"]._alarm is None
        assert await env.app.duties() == []


async def test_a_duty_is_taken_when_there_is_something_to_do(env: Environment) -> None:
    async with env:
        await env.app.schedules.create("eu", does_nothing.call(), Every(60))
        await env.settle()
        assert await env.app.duties() == []
        await env.pass_time(60)
        (duty,) = await env.app.duties()
        assert (duty.name, duty.holder, duty.last_error) == ("schedules", env.engine.worker_id, None)


async def test_the_living_keep_a_duty_and_the_dead_lose_it(env: Environment) -> None:
    """As fast as their runs are taken over, and no time is lost over it."""
    # Each with a clock of its own, for the alarms of one that dies are forgotten with it.
    async with env, Environment(env.path) as other:
        await env.app.schedules.create("eu", does_nothing.call(), Every(1, overlap="allow_all"))
        await env.pass_time(3)
        await other.pass_time(3)
        assert await holder_of(other) == env.engine.worker_id
        env.bury()
        await other.pass_time(3)
        assert await holder_of(other) == other.engine.worker_id
        decisions = (await other.app.schedules.get("eu")).decisions
        assert [each.kind for each in decisions] == ["started"] * 6
        await env.open()


async def test_a_worker_that_stops_leaves_its_duty_to_others(env: Environment) -> None:
    async with env:
        await env.app.schedules.create("eu", does_nothing.call(), Every(1))
        other = Environment(env.path)
        async with other:
            env.bury()
            await other.pass_time(4)
            assert await holder_of(other) == other.engine.worker_id
        await env.open()
        assert await holder_of(env) is None
        # Its own clock has stood still meanwhile.
        await env.pass_time(6)
        assert await holder_of(env) == env.engine.worker_id


async def test_a_duty_is_taken_from_the_living_only_when_it_does_not_get_on(env: Environment) -> None:
    async with env, beside(env) as other:
        await env.app.schedules.create("eu", does_nothing.call(), Every(60))
        env.engine.duties.cancel()
        other.engine.duties.cancel()
        now, mine, theirs = env.clock.now(), env.engine.worker_id, other.engine.worker_id

        async def take(worker_id: str, at: int, stale_before: int | None) -> object:
            outcome = await env.elsewhere([TakeDuty("main", "schedules", worker_id, at, stale_before)])
            assert isinstance(outcome, Committed)
            return outcome.answers.get(0, Applied())

        assert await take(mine, now, None) == Applied()
        assert await take(theirs, now + 1, None) == Moved()
        assert await take(theirs, now + STALE_MS, now - 1) == Moved()
        assert await take(theirs, now + STALE_MS, now) == Applied()
        assert await take("nobody", now + STALE_MS + 1, None) == Moved()


async def test_a_holder_that_lives_and_fails_for_a_minute_loses_the_duty(env: Environment) -> None:
    async with env, beside(env) as other:
        failing, doing_well = Broken(), Broken()
        failing.failures = 10**6
        env.engine.duties.add(failing)
        env.engine.duties.loops["broken"].begin("main")
        await env.pass_time(2)
        (duty,) = await env.app.duties()
        assert (duty.holder, duty.last_error) == (env.engine.worker_id, "ValueError: not now")
        other.engine.duties.add(doing_well)
        other.engine.duties.loops["broken"].begin("main")
        await other.pass_time(50)
        assert doing_well.ticks == []
        await other.pass_time(20)
        assert doing_well.ticks[:2] == [True, False]
        (duty,) = await other.app.duties()
        assert (duty.holder, duty.last_error) == (other.engine.worker_id, None)


async def test_a_duty_that_fails_is_tried_again_and_harms_no_other(
    env: Environment, caplog: pytest.LogCaptureFixture
) -> None:
    async with env:
        await env.app.schedules.create("eu", does_nothing.call(), Every(60))
        duty = Broken()
        duty.failures = 2
        env.engine.duties.add(duty)
        env.engine.duties.loops["broken"].begin("main")
        await env.pass_time(3)
        assert duty.ticks[:2] == [True, False]
        assert "the duty 'broken' failed, will try again: not now" in caplog.text
        told = {each.name: each for each in await env.app.duties()}
        assert told["broken"].last_error is None
        env.engine.duties.loops["broken"].cancel()
        await env.pass_time(60)
        assert len(await env.app.list(schedule="eu")) == 1


async def test_a_duty_that_fails_once_more_says_so_once_more(env: Environment) -> None:
    """What was well for a while is no reason to keep silent about the next failure."""
    async with env:
        duty = Broken()
        duty.failures = 1
        loop = begin(env, duty)
        await env.pass_time(3)
        assert [each.last_error for each in await env.app.duties()] == [None]
        duty.failures = 10**6
        await env.pass_time(1)
        assert [each.last_error for each in await env.app.duties()] == ["ValueError: not now"]
        loop.cancel()


async def test_a_worker_that_has_lost_a_duty_leaves_it_alone_and_looks_at_everything_when_it_has_it_again(
    env: Environment,
) -> None:
    """It learns so when it notes how it does; what the other one did meanwhile it does not know."""
    async with env:
        duty = Broken()
        async with beside(env) as other:
            loop = begin(env, duty)
            await env.pass_time(1)
            assert duty.ticks[:2] == [True, False]
            await give_away(env, other.engine.worker_id)
            await env.pass_time(11)
            ticks = len(duty.ticks)
            await env.pass_time(5)
            assert len(duty.ticks) == ticks
        await env.pass_time(3)
        assert duty.ticks[ticks : ticks + 2] == [True, False]
        assert await holder_of(env) == env.engine.worker_id
        loop.cancel()


async def test_a_tick_that_finds_the_duty_lost_is_the_last_one(env: Environment) -> None:
    """A sink learns it with what it sent, long before the next note."""
    async with env, beside(env) as other:
        duty = Broken()
        loop = begin(env, duty)
        await env.pass_time(1)
        await give_away(env, other.engine.worker_id)
        duty.failures, duty.error = 1, DutyLost()
        await env.pass_time(1)
        assert duty.failures == 0
        ticks = len(duty.ticks)
        await env.pass_time(4)
        assert len(duty.ticks) == ticks
        loop.cancel()


async def test_what_is_told_while_it_is_looked_is_looked_for_as_well(env: Environment) -> None:
    """Between what was read and the end of the look lies a gap; nothing may be lost in it."""
    async with env:
        duty = Overlooked()
        env.engine.duties.add(duty)
        duty.loop = env.engine.duties.loops[duty.name]
        duty.loop.begin("main")
        await env.settle()
        assert duty.ticks == 1
