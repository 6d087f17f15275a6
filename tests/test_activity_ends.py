"""How activities are begun and given up: cancelled wherever they run, not begun too late, begun once at most."""

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest

from perdure import Activity, AttemptLost, Retry, Status, activity, attempt, heartbeat, select, sleep, workflow
from perdure.errors import BadOption, BadValue
from perdure.stores.operations import Batch, DeleteWorker, FreeRuns, InsertRichRun, RaiseEpoch
from perdure.testing import Environment

said: list[str] = []
# Nobody ever sets it: whoever waits for it looks around now and then.
_now_and_then = threading.Event()


@pytest.fixture(autouse=True)
def _forget() -> None:
    said.clear()


@activity(timeout=3600)
async def waits() -> None:
    said.append("began")
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        said.append("cancelled")
        raise


@activity(timeout=3600)
def waits_in_a_thread() -> None:
    said.append("began")
    me = attempt()
    while not me.is_cancelled:
        _now_and_then.wait(0.001)
    try:
        heartbeat()
    except asyncio.CancelledError:
        said.append("cancelled")
        raise


@workflow
async def waiting(kind: str, queue: str | None, patience: float) -> str:
    step = waits if kind == "task" else waits_in_a_thread
    wanted = step if queue is None else step.options(queue=queue)
    if patience < 0:
        won, _ = await select(step=wanted(), late=sleep(-patience))
        await sleep(3600)
        return won
    try:
        async with asyncio.timeout(patience):
            await wanted()
    except TimeoutError:
        await sleep(3600)
        return "too late"
    return "done"


@asynccontextmanager
async def two(env: Environment) -> AsyncIterator[tuple[Environment, Environment]]:
    """A worker of the default queue, and one of the queue of the activities."""
    gpu = Environment(env.path, clock=env.clock, queues=("gpu",), replay_always=env._replay_always)
    async with env, gpu:
        yield env, gpu


async def together(environments: tuple[Environment, Environment], seconds: float = 2) -> None:
    """Let time pass for both."""
    for _ in range(4):
        for each in environments:
            await each.settle()
        environments[0].clock.advance(round(seconds * 250))
    for each in environments:
        await each.settle()


async def until_said(text: str, env: Environment) -> None:
    """Let time pass until activity code has said this; a thread runs on by a clock of its own."""
    async with asyncio.timeout(60):
        while text not in said:
            env.clock.advance(20)
            for _ in range(10):
                await asyncio.sleep(0.0005)


@pytest.mark.parametrize("end", ["cancel", "terminate", "timeout", "select"])
@pytest.mark.parametrize("queue", [None, "gpu"])
@pytest.mark.parametrize("kind", ["task", "thread"])
async def test_whatever_ends_the_call_reaches_the_code(
    env: Environment, kind: str, queue: str | None, end: str
) -> None:
    """Also in another process, within two seconds, without a heartbeat option."""
    patience = {"timeout": 600.0, "select": -600.0}.get(end, 3000.0)
    async with two(env):
        run = await env.start(waiting, kind, queue, patience)
        await until_said("began", env)
        if end == "cancel":
            await run.cancel()
        elif end == "terminate":
            await run.terminate()
        else:
            env.clock.advance(600_000)
        await until_said("cancelled", env)
        assert said == ["began", "cancelled"]


@pytest.mark.parametrize("kind", ["task", "thread"])
async def test_a_lost_lease_reaches_its_code(env: Environment, kind: str) -> None:
    """Another worker runs it again: what runs here must stop, long before its lease would be renewed."""
    async with env:
        await env.start(waiting, kind, None, 3000.0)
        await until_said("began", env)
        (worker,) = await env.store.reads.workers()
        lost_at = env.clock.now()
        await env.elsewhere([RaiseEpoch(worker.worker_id, worker.epoch), FreeRuns(worker.worker_id, 0, 10)])
        await env.elsewhere([DeleteWorker(worker.worker_id)])
        await until_said("cancelled", env)
        assert env.clock.now() - lost_at < 9000


# On a queue that nobody works in time


@activity(queue="gpu", queue_timeout=60)
async def begins_soon() -> str:
    said.append("began")
    return "done"


@workflow
async def wants_it_soon() -> str:
    try:
        return await begins_soon()
    except TimeoutError as error:
        return str(error)


TOO_LATE = "no worker of the queue 'gpu' has begun the activity 'begins_soon' within its queue_timeout of 60 s"


async def test_a_call_that_no_worker_begins_in_time_fails_and_is_not_begun_later(env: Environment) -> None:
    async with env:
        run = await env.start(wants_it_soon.options(id="soon"))
        await env.pass_time(59)
        assert (await run.describe()).status in {Status.RUNNING, Status.SUSPENDED}
        await env.pass_time(2)
        assert await env.result(run) == TOO_LATE
        async with Environment(env.path, clock=env.clock, queues=("gpu",)) as gpu:
            await together((env, gpu), 10)
        assert said == []


async def test_a_call_is_given_up_in_time_although_its_start_was_slow(env: Environment) -> None:
    """When its time is over before it is on disk, there is nothing to give up yet; it is looked again."""
    slow: list[str] = []

    def hold_up(batch: Batch) -> None:
        starts = [op for group in batch.groups for op in group if isinstance(op, InsertRichRun)]
        if starts and not slow:
            slow.append(starts[0].run_id)
            env.clock.advance(61_000)

    async with env:
        env.store.before_commit = hold_up
        run = await env.start(wants_it_soon)
        assert await env.result(run, timedelta(minutes=1)) == TOO_LATE
    assert len(slow) == 1
    assert said == []


async def test_a_call_that_is_begun_in_time_may_take_its_time(env: Environment) -> None:
    async with two(env) as both:
        run = await env.start(waiting, "task", "gpu", 3000.0)
        soon = await env.start(wants_it_soon)
        await together(both, 10)
        assert await env.result(soon) == "done"
        await run.terminate()
        await together(both, 10)


async def test_a_worker_that_comes_too_late_does_not_begin_it(env: Environment) -> None:
    """The caller's worker may be gone when the time is over, and nobody has told anybody."""
    async with env:
        await env.start(wants_it_soon.options(id="late"))
        await env.pass_time(2)
    env.clock.advance(120_000)
    async with Environment(env.path, clock=env.clock, queues=("gpu",)) as gpu:
        await gpu.pass_time(5)
        assert said == []
        async with env:
            await together((env, gpu), 10)
            assert await env.result(await env.app.get("late")) == TOO_LATE


def test_only_a_call_on_a_queue_has_to_be_begun_in_time() -> None:
    with pytest.raises(BadOption, match="give a queue"):
        waits.options(queue_timeout=5)
    with pytest.raises(BadOption, match="queue_timeout"):
        begins_soon.options(queue_timeout=-1)


# At most once


@activity(at_most_once=True, timeout=3600)
async def pays_the_bill(how: str) -> str:
    said.append("began")
    if how == "fails":
        raise ConnectionError("down")
    if how == "hangs":
        await asyncio.Event().wait()
    return "paid"


@activity(at_most_once=True)
async def pays_it_at_once() -> str:
    said.append("began")
    return "paid"


@activity(at_most_once=True)
def pays_it_in_a_thread() -> str:
    said.append("began")
    return "paid"


@workflow
async def paying(how: str, queue: str | None) -> str:
    try:
        return await (pays_the_bill if queue is None else pays_the_bill.options(queue=queue))(how)
    except (AttemptLost, ConnectionError) as error:
        return type(error).__name__


@workflow
async def paying_thrice() -> list[str]:
    return list(await asyncio.gather(pays_the_bill("at once"), pays_it_at_once(), pays_it_in_a_thread()))


@asynccontextmanager
async def both_queues(env: Environment) -> AsyncIterator[Environment]:
    env._queues = ("default", "gpu")
    async with env:
        yield env


async def test_what_is_begun_at_most_once_is_done(env: Environment) -> None:
    async with both_queues(env):
        assert await env.run(paying_thrice) == ["paid"] * 3
        for queue in (None, "gpu"):
            assert await env.run(paying, "works", queue) == "paid"


async def test_its_begin_is_on_disk_before_its_code_begins(env: Environment) -> None:
    @activity(name="looks_at_its_begin", at_most_once=True)
    async def looks_at_its_begin() -> int:
        (known,) = (await env.store.reads.progress([attempt().run_id]))[attempt().run_id]
        return 0 if known.begun_at is None else 1

    @workflow(name="looking_at_its_begin")
    async def looking_at_its_begin() -> int:
        return await looks_at_its_begin()

    async with env:
        assert await env.run(looking_at_its_begin) == 1


async def test_a_failure_is_final(env: Environment) -> None:
    async with both_queues(env):
        for queue in (None, "gpu"):
            said.clear()
            assert (await env.run(paying, "fails", queue), said) == ("ConnectionError", ["began"])


async def test_one_that_is_lost_with_its_process_is_not_begun_again(env: Environment) -> None:
    async with both_queues(env):
        for number, queue in enumerate((None, "gpu")):
            said.clear()
            run = await env.start(paying.options(id=f"p{number}"), "hangs", queue)
            await env.pass_time(2)
            assert said == ["began"]
            await env.crash()
            await env.pass_time(5)
            again = await env.app.get(run.id)
            assert (await env.result(again), said) == ("AttemptLost", ["began"])


def test_at_most_once_and_many_attempts_contradict_each_other() -> None:
    with pytest.raises(BadOption, match="at_most_once=True and a retry of 5 attempts"):
        pays_the_bill.options(retry=Retry(max_attempts=5))
    with pytest.raises(BadOption, match="contradict"):
        waits.options(retry=Retry(max_attempts=2)).options(at_most_once=True)
    with pytest.raises(BadOption, match="contradict"):
        activity(at_most_once=True, retry=Retry())
    with pytest.raises(BadOption, match="at_most_once is 1"):
        waits.options(at_most_once=1)  # type: ignore[arg-type]  # that is the point
    assert pays_the_bill.options(retry=Retry(max_attempts=1)).settings.at_most_once
    assert waits.options(at_most_once=True).settings.retry.max_attempts == 1


# What other code returned


async def test_a_result_that_does_not_fit_fails_the_call(env: Environment) -> None:
    """The worker of the queue may have other code; the caller's run can do something about it."""

    @activity(name="measures", queue="gpu")
    async def measures() -> str:
        return "much"

    async def as_the_caller_knows_it() -> int:
        raise NotImplementedError

    wanted: Activity[[], int] = Activity(as_the_caller_knows_it, "measures", measures.settings)

    @workflow(name="measuring")
    async def measuring() -> str:
        try:
            await wanted()
        except BadValue as error:
            return str(error)
        return "fits"

    async with both_queues(env):
        assert "the result of activity 'measures'" in await env.run(measuring)
