"""Duties: one worker does it for all; who that is moves with workers, and nothing rests on it."""

import pytest

from perdure import Every, workflow
from perdure.engine.duties.duties import STALE_MS
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
        self.since = 0
        self.ticks: list[bool] = []

    async def due_at(self, namespace: str, now: int) -> int | None:
        return self.since

    async def tick(self, namespace: str, now: int, *, is_first: bool) -> None:
        if self.failures:
            self.failures -= 1
            raise ValueError("not now")
        self.ticks.append(is_first)


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
