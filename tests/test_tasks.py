"""Activities on a queue: run by whichever worker of that queue takes them, recorded by whoever called them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from perdure import Retry, Status, activity, attempt, workflow
from perdure.errors import BadOption, RunCancelled, RunFailed
from perdure.testing import Environment

ran: list[tuple[str, object]] = []


class Overheated(Exception):  # noqa: N818 - it is what it says
    """What happens to the best of them."""


@activity(queue="gpu")
async def render(scene: str, frames: int = 1) -> str:
    ran.append(("render", attempt().number))
    return f"{scene} x{frames}"


@activity(queue="gpu", retry=Retry(max_attempts=3, initial_interval=10, non_retryable=(KeyError,)))
def overheats(scene: str, times: int) -> str:
    ran.append((scene, attempt().number))
    if attempt().number <= times:
        raise Overheated(f"{scene} {attempt().number}")
    return scene


@activity(queue="gpu", retry=Retry(non_retryable=(LookupError,)))
async def looks_in_vain() -> None:
    ran.append(("looked", attempt().number))
    raise KeyError("nothing")


@activity(queue="gpu")
async def renders_for_ever() -> None:
    ran.append(("began", 1))
    try:
        await asyncio.Event().wait()
    finally:
        ran.append(("stopped", 1))


@workflow
async def makes_a_film(scene: str) -> str:
    return await render(scene, frames=24)


@workflow
async def makes_many(count: int) -> list[str]:
    return await asyncio.gather(*(render(str(number)) for number in range(count)))


@workflow
async def makes_it_hot(scene: str, times: int) -> str:
    try:
        return await overheats(scene, times)
    except Overheated as error:
        return f"gave up: {error}"


@workflow
async def looks() -> str:
    try:
        await looks_in_vain()
    except KeyError as error:
        return f"no {error}"
    return "found"


@workflow
async def looks_twice() -> None:
    await looks_in_vain()


@workflow
async def never_ends() -> None:
    await renders_for_ever()


@pytest.fixture(autouse=True)
def _forget() -> None:
    ran.clear()


@asynccontextmanager
async def two(env: Environment) -> AsyncIterator[tuple[Environment, Environment]]:
    """A worker of the default queue, and one of the queue of the activities."""
    path = env.path
    gpu = Environment(path, clock=env.clock, queues=("gpu",), replay_always=env._replay_always)
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


async def test_an_activity_on_a_queue_runs_where_that_queue_is_worked(env: Environment) -> None:
    async with env:
        run = await env.start(makes_a_film.options(id="film"), "dawn")
        await env.pass_time(2)
        await env.pass_time(2)
        assert ran == []
        (wait,) = (await run.describe()).waiting_for
        assert (wait.kind, wait.name, wait.queue) == ("activity", "render", "gpu")
        async with Environment(env.path, clock=env.clock, queues=("gpu",)) as gpu:
            await together((env, gpu))
            assert ran[0] == ("render", 1)
            assert await env.result(run) == "dawn x24"
        assert [event.kind for event in await env.events("film")] == ["RunStarted", "ChildCompleted", "RunCompleted"]
        assert [info.workflow_id for info in await env.app.list()] == ["film"]
        assert [info.workflow for info in await env.app.list(workflow="task:render")] == ["task:render"]


async def test_a_queue_that_nobody_works_is_told_once(env: Environment, caplog: pytest.LogCaptureFixture) -> None:
    """Whoever forgets the other worker waits for ever, and nothing looks wrong."""

    def told() -> list[str]:
        return [each.getMessage() for each in caplog.records if getattr(each, "event", "") == "queue_unworked"]

    async with env:
        for scene in ("dawn", "dusk"):
            await env.start(makes_a_film.options(id=scene), scene)
        await env.pass_time(3)
        (said,) = told()
        assert "the activity render of run 'dawn' waits on the queue gpu, which no living worker works" in said
        assert "`perdure worker MODULE --queue gpu`" in said
        async with Environment(env.path, clock=env.clock, queues=("gpu",)) as gpu:
            await together((env, gpu))
            await env.start(makes_a_film.options(id="noon"), "noon")
            await together((env, gpu), 8)
        assert len(told()) == 1


async def test_a_worker_of_both_queues_runs_it_at_once(env: Environment) -> None:
    env._queues = ("default", "gpu")
    async with env:
        assert await env.run(makes_a_film, "noon") == "noon x24"
        assert await env.run(makes_many, 20) == [f"{number} x1" for number in range(20)]


async def test_whoever_called_it_learns_where_it_failed(env: Environment) -> None:
    """A task's own code is two lines of ours; the line that raised is in the activity, on another machine."""
    env._queues = ("default", "gpu")
    async with env:
        run = await env.start(looks_twice.options(id="twice"))
        await env.settle()
        failed = (await env.events("twice"))[1].body["failure"]
        assert isinstance(failed, dict)
        assert "in looks_in_vain" in failed["traceback"]
        assert 'raise KeyError("nothing")' in failed["traceback"]
        with pytest.raises(RunFailed, match="nothing"):
            await env.result(run)


async def test_it_is_tried_as_its_caller_wants(env: Environment) -> None:
    async with two(env) as both:
        run = await env.start(makes_it_hot, "tin", 2)
        await together(both)
        assert [number for name, number in ran if name == "tin"][-1] == 1
        await together(both, 40)
        await together(both, 40)
        assert await env.result(run) == "tin"
        assert [number for name, number in ran if name == "tin"] == [1, 2, 3]


async def test_its_own_error_reaches_the_caller_when_attempts_are_spent(env: Environment) -> None:
    async with two(env) as both:
        run = await env.start(makes_it_hot, "lead", 9)
        for _ in range(4):
            await together(both, 40)
        assert await env.result(run) == "gave up: lead 3"


async def test_errors_that_are_not_worth_it_are_not_tried_again(env: Environment) -> None:
    """Subclasses count, though the type has travelled by its name."""
    async with two(env) as both:
        run = await env.start(looks)
        await together(both)
        assert await env.result(run) == "no 'nothing'"
        assert [name for name, _ in ran] == ["looked"]


async def test_a_cancelled_caller_stops_its_task(env: Environment) -> None:
    async with two(env) as both:
        run = await env.start(never_ends)
        await together(both)
        assert ("began", 1) in ran
        await run.cancel("enough")
        await together(both)
        await together(both)
        with pytest.raises(RunCancelled):
            await env.result(run)
        assert ran[-1] == ("stopped", 1)


async def test_a_task_whose_worker_died_is_run_again(env: Environment) -> None:
    """An attempt that was lost with its process is not counted."""
    gpu = Environment(env.path, clock=env.clock, queues=("gpu",))
    async with env:
        await gpu.open()
        await env.start(never_ends.options(id="n"))
        await together((env, gpu))
        assert ran == [("began", 1)]
        await gpu.crash()
        await together((env, gpu))
        await together((env, gpu))
        assert ran.count(("began", 1)) == 2
        (task,) = await (await env.app.get("n")).children()
        assert (task.workflow, task.queue, task.status) == ("task:renders_for_ever", "gpu", Status.RUNNING)
        gpu.bury()


def test_no_workflow_is_named_like_a_task() -> None:
    with pytest.raises(BadOption, match="activity on a queue"):

        @workflow(name="task:render")
        async def something_else() -> None:
            """Would be taken for a task."""
