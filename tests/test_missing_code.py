"""Code that no living worker has: whoever looks at a run that waits for it is told, and since when."""

import asyncio
import logging
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import pydantic
import pytest

from perdure import Signal, activity, sleep, workflow
from perdure.authoring.workflow import workflows
from perdure.codec import ValueType
from perdure.codec.schemas import misfit
from perdure.engine.hindrances import has_code, served_by, told_missing
from perdure.engine.waiting.waiters import FEW
from perdure.stores.records import WorkerRow
from perdure.testing import Environment

word = Signal("word", int)


@workflow(name="as_it_was")
async def waits() -> int:
    return await word.receive()


@workflow
async def waits_as_well() -> int:
    return await word.receive()


@workflow
async def calls_a_child() -> int:
    return await waits.options(queue="far")()


@workflow
async def another() -> int:
    return 1


@workflow
async def naps() -> int:
    await sleep(60)
    return 1


@activity(queue="nobodys")
async def far_away() -> int:
    return 1


@workflow
async def calls_far_away() -> int:
    return await far_away()


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if getattr(record, "event", "") == "code_missing"]


async def renamed(env: Environment) -> None:
    """A run, and a worker that has another workflow instead of its own."""
    await env.start(waits.options(id="a"))
    await env.settle()
    env.workflows = [another]
    await env.crash()


NO_CODE = "no living worker has code for the workflow 'as_it_was' (queue default; workers there have: another)"


async def test_a_workflow_that_was_renamed_is_told_wherever_anybody_looks(env: Environment) -> None:
    """Everybody said that it goes on, and the run waited for ever."""
    async with env:
        await renamed(env)
        run = await env.app.get("a")
        freed_at = env.clock.now()
        await env.pass_time(60)

        info = await run.describe()
        (listed,) = await env.app.list()

        for waiting in (info.waiting_for[0], listed.waiting_for[0]):
            assert (waiting.kind, waiting.name, waiting.queue) == ("worker", "as_it_was", "default")
            assert (waiting.reason or "").startswith(NO_CODE)
            assert '@workflow(name="as_it_was")' in (waiting.reason or "")
            assert waiting.since is not None
            assert abs(waiting.since.timestamp() * 1000 - freed_at) < 1000
        with pytest.raises(
            TimeoutError, match=r"after 0: it waits since [-0-9: ]+ [A-Z]+ because no living worker has code"
        ):
            await run.result(timeout=0)

        env.workflows = [waits]
        await env.crash()
        await env.settle()
        run = await env.app.get("a")
        assert [each.kind for each in (await run.describe()).waiting_for] == []
        with pytest.raises(TimeoutError, match="; it goes on"):
            await run.result(timeout=0)
        await run.signal("word", 7)
        assert await env.result(run) == 7


async def test_whoever_waits_for_it_reads_it_in_the_log_once(
    env: Environment, caplog: pytest.LogCaptureFixture
) -> None:
    """`result()` without a timeout is how most programs wait, and a second line a second would be as bad as none."""
    async with env:
        await renamed(env)
        waiting = [(await env.app.get("a")).result() for _ in range(2)]
        with pytest.raises(TimeoutError):
            await env.alive(waiting[0], patience=60)
        waiting[1].close()
        (line,) = told(caplog)
        assert line.startswith("run 'a' waits since ")
        assert NO_CODE in line


async def test_code_that_was_back_and_is_missing_again_is_told_of_again(
    env: Environment, caplog: pytest.LogCaptureFixture
) -> None:
    """Of two bad deploys in the life of a program that waits, it has to tell of the second as well."""
    async with Environment(env.path, clock=env.clock, worker=False) as client:
        result = asyncio.ensure_future((await client.start(waits.options(id="a"))).result())
        for times, workflows in ((1, [another]), (1, [waits]), (2, [another])):
            env.workflows = workflows
            async with env:
                for _ in range(20):
                    await env.pass_time(1)
                    await client.settle()
            lines = [line for line in told(caplog) if line.startswith("run 'a' waits since ")]
            assert [NO_CODE in line for line in lines] == [True] * times
        result.cancel()


async def test_the_worker_of_a_parent_tells_again_of_code_that_was_back_and_is_missing_again(
    env: Environment, caplog: pytest.LogCaptureFixture
) -> None:
    """Each bad deploy of those who work the children's queue is told of once."""
    async with env:
        for times, workflows in ((1, [another]), (1, [waits]), (2, [another])):
            async with Environment(env.path, clock=env.clock, queues=("far",), workflows=workflows) as far:
                for _ in range(2):
                    await env.pass_time(1)
                for _ in range(2):
                    await env.start(calls_a_child)
                for _ in range(3):
                    await env.pass_time(1)
                    await far.settle()
            lines = [line for line in told(caplog) if line.startswith("the child ")]
            assert [line.endswith("of it has, as_it_was; start one that does") for line in lines] == [True] * times


async def test_among_many_that_are_awaited_the_one_without_code_is_told_of(
    env: Environment, caplog: pytest.LogCaptureFixture
) -> None:
    """They are looked at a few at a time; those that came first must not be all that ever are."""
    env.workflows = [another, waits_as_well]
    async with env, Environment(env.path, clock=env.clock, worker=False) as client:
        runs = [await client.start(waits_as_well) for _ in range(3 * FEW)]
        results = [asyncio.ensure_future(run.result()) for run in [*runs, await client.start(waits.options(id="a"))]]
        for _ in range(30):
            await env.pass_time(1)
            await client.settle()
        # The worker, a process of its own, says so too.
        assert len([line for line in told(caplog) if line.startswith("run 'a' waits since ")]) == 1
        for result in results:
            result.cancel()


async def test_a_worker_that_starts_says_which_code_it_has_not(
    env: Environment, caplog: pytest.LogCaptureFixture
) -> None:
    """A deploy with a workflow renamed looks well; the log of its start is where people look."""
    async with env:
        await renamed(env)
        # It has just been lost; the next worker may have it.
        assert told(caplog) == []
        await env.pass_time(10)
        await env.crash()
        (line,) = told(caplog)
        assert line.startswith("a run of as_it_was waits since ")
        assert NO_CODE in line


async def test_a_worker_says_once_that_a_run_has_become_due_whose_code_nobody_has(
    env: Environment, caplog: pytest.LogCaptureFixture
) -> None:
    """The start of the worker was days ago, and nobody waits for the result: nothing else would ever say so."""
    async with env:
        await env.start(naps.options(id="a"))
        await env.pass_time(20)
        env.workflows = [another]
        await env.crash()
        await env.pass_time(30)
        assert told(caplog) == []

        for _ in range(5):
            await env.pass_time(50)

        (line,) = told(caplog)
        assert line.startswith("a run of naps waits since ")
        assert "no living worker has code for the workflow 'naps'" in line


async def test_a_timer_that_is_not_due_yet_misses_no_worker(env: Environment) -> None:
    """It waits for its time, whoever has the code; a page that names a worker sends people to mend what is whole."""
    async with env:
        await env.start(naps.options(id="a"))
        await env.pass_time(20)
        env.workflows = [another]
        await env.crash()
        run = await env.app.get("a")
        assert [each.kind for each in (await run.describe()).waiting_for] == ["timer"]

        await env.pass_time(60)

        assert [each.kind for each in (await run.describe()).waiting_for] == ["worker", "timer"]


async def test_a_run_that_nobody_works_is_told_to_a_client(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Who has started no worker at all waits for ever as well."""
    async with Environment(str(tmp_path / "test.db"), worker=False) as env:
        run = await env.start(waits.options(id="a"))
        with pytest.raises(TimeoutError):
            await env.alive(run.result(), patience=30)
        (line,) = told(caplog)
        assert "no living worker works its queue, default; start one that has the workflow as_it_was" in line
        with pytest.raises(TimeoutError, match="no living worker works its queue, default"):
            await run.result(timeout=0)


async def test_a_run_that_only_waits_misses_nobody_while_nothing_works(tmp_path: Path) -> None:
    """A file may rest until its program is started again."""
    path = str(tmp_path / "test.db")
    async with Environment(path) as env:
        await env.start(waits.options(id="a"))
        await env.pass_time(20)
    async with Environment(path, worker=False) as env:
        info = await (await env.app.get("a")).describe()
        assert [each.kind for each in info.waiting_for] == ["signal"]


async def test_an_activity_that_nobody_could_run_is_told_with_its_wait(env: Environment) -> None:
    async with env:
        run = await env.start(calls_far_away)
        await env.pass_time(2)
        await env.pass_time(2)
        (wait,) = (await run.describe()).waiting_for
        assert (wait.kind, wait.name, wait.queue) == ("activity", "far_away", "nobodys")
        assert wait.reason == "no living worker works its queue, nobodys; start one that has the activity far_away"
        with pytest.raises(
            TimeoutError, match=r": the activity far_away waits because no living worker works its queue"
        ):
            await run.result(timeout=0)


async def test_a_parent_tells_that_nobody_has_the_code_of_its_child(env: Environment) -> None:
    """Who waits for the parent was told that it goes on, and had to guess which child it hangs on."""
    async with env:
        run = await env.start(calls_a_child.options(id="parent"))
        await env.pass_time(2)
        await env.pass_time(2)
        (wait,) = (await run.describe()).waiting_for
        assert (wait.kind, wait.name) == ("child", "parent/as_it_was")
        assert wait.reason == "no living worker works its queue, far; start one that has the workflow as_it_was"
        with pytest.raises(TimeoutError, match=r": the child parent/as_it_was waits .*because no living worker works"):
            await run.result(timeout=0)


async def test_workflows_that_are_registered_later_are_in_the_workers_row(env: Environment) -> None:
    """A module that is imported when it is first needed must not be taken for code that is missing."""
    async with env:
        name = f"late_{len(workflows.names())}"
        (before,) = await env.store.reads.workers()
        assert name not in (before.workflows or "")

        @workflow(name=name)
        async def registered_late() -> int:
            return 1

        env.worker.look_around()
        await env.settle()
        (after,) = await env.store.reads.workers()
        assert name in (after.workflows or "")


def a_worker(workflows: str | None, queues: str = '["q"]', namespace: str = "main") -> WorkerRow:
    return WorkerRow("w", namespace, 1, 0, queues, "host", 1, 0, None, workflows)


@pytest.mark.parametrize(
    ("workers", "is_served"),
    [
        ([], False),
        ([a_worker('["a"]')], True),
        ([a_worker('["b"]')], False),
        ([a_worker('["b"]'), a_worker('["a"]')], True),
        # A worker of the version before says nothing of what it has.
        ([a_worker('["b"]'), a_worker(None)], True),
        ([a_worker(None), a_worker('["b"]')], True),
        ([a_worker('["a"]', queues='["p"]')], False),
        ([a_worker('["a"]', namespace="other")], False),
    ],
)
def test_who_has_the_code_of_a_run(workers: list[WorkerRow], is_served: bool) -> None:
    assert has_code(served_by(workers, "main"), "q", "a") is is_served


def test_a_few_of_the_names_there_are_help_to_see_what_was_meant() -> None:
    served = served_by([a_worker('["a","b","c","d","e","f","g","task:t"]')], "main")
    assert "(queue q; workers there have: a, b, c, d, e, 2 more)" in told_missing("z", "q", served)
    assert "has code for the activity 'z' (queue q; workers there have: t)" in told_missing("task:z", "q", served)


# What a signal takes


class Order(msgspec.Struct):
    id: str
    lines: list[int] = []
    note: str | None = None


class Model(pydantic.BaseModel):
    by: str
    at: datetime | None = None


@pytest.mark.parametrize(
    ("annotation", "value", "trouble"),
    [
        (bool, True, None),
        (bool, "true", "expected boolean, got string"),
        (bool, 1, "expected boolean, got integer"),
        (int, True, "expected integer, got boolean"),
        (int, 7, None),
        (float, 7, None),
        (float, "7", "expected number, got string"),
        (str | None, None, None),
        (str | None, 7, "expected string or null, got integer"),
        (datetime, "2026-01-01T00:00:00Z", None),
        (Literal["a", "b"], "c", "expected one of 'a', 'b', got string"),
        (list[int], [1, "2"], "expected integer, got string at $[1]"),
        (tuple[int, str], [1, 2], "expected string, got integer at $[1]"),
        (dict[str, int], {"a": "b"}, "expected integer, got string at $.a"),
        (Order, {"id": "o", "lines": [1]}, None),
        (Order, {"lines": [1]}, "'id' is missing at $"),
        (Order, {"id": "o", "lines": ["x"]}, "expected integer, got string at $.lines[0]"),
        (Order | None, None, None),
        (Order, 7, "expected Order, got integer"),
        (Model, {"by": "ann"}, None),
        (Model, {"by": 7}, "expected By, got integer at $.by"),
        (Annotated[int, msgspec.Meta(gt=3)], 1, None),
    ],
)
def test_a_payload_is_checked_by_the_schema_of_its_annotation(
    annotation: Any, value: object, trouble: str | None
) -> None:
    schema = ValueType(annotation).schema
    assert schema is not None
    assert misfit(value, msgspec.json.decode(schema)) == trouble


@pytest.mark.parametrize("annotation", [Any, logging.Logger, Literal[tuple(f"word-{n}" for n in range(200))]])
def test_what_no_short_schema_tells_is_not_checked(annotation: Any) -> None:
    """It goes into the row of every run that waits for it."""
    assert ValueType(annotation).schema is None
