"""Defaults: a run is started with all its arguments, those that nobody gave included."""

import datetime as dt
from dataclasses import dataclass
from typing import Any

import pytest

from perdure import BadValue, IdConflict, Retry, Signal, Workflow, activity, continue_as_new, workflow
from perdure.authoring.activity import Activity
from perdure.authoring.options import WorkflowOptions
from perdure.engine.ports import StartRequest
from perdure.testing import Environment

go = Signal("go", int)


def job_with(default: int) -> Workflow[..., Any]:
    """A version of one workflow; what changes from one to the next is its default."""

    async def job(limit: int = default, *, seen: list[str] = []) -> list[object]:  # noqa: B006 - on purpose
        seen.append("begun")
        await go.receive()
        return [limit, seen]

    return Workflow(job, "job", WorkflowOptions())


def draw_with(default: int) -> Activity[..., Any]:
    """A version of one activity on a queue."""

    @activity(queue="gpu", name="draw")
    async def draw(frames: int = default) -> int:
        return frames

    return draw


@workflow
async def calls_a_job() -> list[object]:
    return list(await job_with(1).options(id="child")())


async def test_a_run_keeps_the_default_it_was_started_with(env: Environment) -> None:
    """A deploy with another default must not change what is under way."""
    env.workflows = [job_with(1)]
    async with env:
        run = await env.start(job_with(1))
        await env.settle()
    env.workflows = [job_with(2)]
    async with env:
        run = await env.app.get(run.id)
        await run.signal(go, 1)
        assert await env.result(run) == [1, ["begun"]]


async def test_a_child_keeps_the_default_it_was_called_with(env: Environment) -> None:
    env.workflows = [calls_a_job, job_with(1)]
    async with env:
        parent = await env.start(calls_a_job)
        await env.settle()
    env.workflows = [calls_a_job, job_with(2)]
    async with env:
        run = await env.app.get(parent.id)
        await (await env.app.get("child")).signal(go, 1)
        assert await env.result(run) == [1, ["begun"]]


async def test_a_task_keeps_the_default_it_was_called_with(env: Environment) -> None:
    """It waits for a worker of its queue; that one may have been deployed later."""
    draw = draw_with(1)

    async def draws() -> int:
        return int(await draw())

    env.workflows = [Workflow(draws, "draws", WorkflowOptions())]
    async with env:
        run = await env.start(env.workflows[0])
        await env.settle()
    draw = draw_with(2)
    env._queues = ("default", "gpu")
    async with env:
        assert await env.result(await env.app.get(run.id)) == 1


async def test_a_run_of_before_gets_the_defaults_of_its_code(env: Environment) -> None:
    """It was recorded without them; it goes on as it did."""
    env.workflows = [job_with(2)]
    async with env:
        await env.app._opened.client.start("main", StartRequest("job", "{}", "old"))
        run = await env.app.get("old")
        await run.signal(go, 1)
        assert await env.result(run) == [2, ["begun"]]


# Copies


@activity
async def collects(name: str, into: list[str] = [], *, more: dict[str, int] = {}) -> list[object]:  # noqa: B006 - on purpose
    into.append(name)
    more[name] = len(into)
    return [into, more]


@workflow
async def collects_twice(into: list[str] = []) -> list[object]:  # noqa: B006 - on purpose
    into.append("first")
    one = await collects("a")
    into.append("second")
    return [into, one, await collects("b")]


async def test_a_mutable_default_belongs_to_one_call_alone(env: Environment) -> None:
    """In Python it is one object for all calls; here it would carry what one run did into another, or into a replay."""
    expected = [["first", "second"], [["a"], {"a": 1}], [["b"], {"b": 1}]]
    async with env:
        assert await env.result(await env.start(collects_twice)) == expected
        run = await env.start(collects_twice)
        assert await env.result(run) == expected
        steps = [event for event in await env.events(run.id) if event.kind == "ActivityCompleted"]
        assert steps[0].body["arguments"] == {"name": "a", "into": [], "more": {}}


fails: list[int] = []


@activity(retry=Retry(max_attempts=2, initial_interval=1))
async def copied_and_fails_once(seen: list[str] = []) -> list[str]:  # noqa: B006 - on purpose
    seen.append("tried")
    if not fails:
        fails.append(1)
        raise ValueError
    return seen


@workflow
async def copies_for_each_try() -> list[str]:
    return await copied_and_fails_once()


async def test_another_attempt_gets_another_copy(env: Environment) -> None:
    fails.clear()
    async with env:
        assert await env.result(await env.start(copies_for_each_try)) == ["tried"]


async def test_a_call_that_is_started_twice_is_copied_twice(env: Environment) -> None:
    """Two runs of one `call()` must not see each other's arguments change."""
    async with env:
        call = collects_twice.call([])
        runs = [*await env.app.start_many(call, call), *await env.app.start_many(call)]
        for run in runs:
            assert not isinstance(run, Exception)
            assert (await env.result(run))[0] == ["first", "second"]


@workflow
async def continues_once(round: int = 1, notes: list[int] = []) -> list[int]:  # noqa: B006 - on purpose
    notes.append(round)
    if round == 1:
        continue_as_new(2)
    return notes


async def test_a_run_that_continues_has_its_own_defaults(env: Environment) -> None:
    async with env:
        assert await env.result(await env.start(continues_once)) == [2]


# The same id again


async def test_a_default_and_the_same_value_given_are_the_same_start(env: Environment) -> None:
    env.workflows = [job_with(1)]
    job = job_with(1).options(id="same")
    async with env:
        run = await env.start(job)
        for again in (await env.start(job, 1), await env.start(job, limit=1, seen=[])):
            assert again.run_id == run.run_id
        with pytest.raises(IdConflict, match="it has other arguments"):
            await env.start(job, 2)


async def test_a_default_that_has_changed_is_named_as_what_differs(env: Environment) -> None:
    """The caller has changed nothing; to end the run, which was offered first, would have been wrong."""
    async with env:
        run = await env.start(job_with(1).options(id="same"))
        changed = job_with(2).options(id="same")
        with pytest.raises(IdConflict, match=r"it differs only in limit, .* give what it has; use another id, or "):
            await env.start(changed)
        with pytest.raises(IdConflict, match="it has other arguments"):
            await env.start(changed, 3)
        assert (await env.start(changed, 1)).run_id == run.run_id


@pytest.mark.parametrize("recorded", ["{}", '{"limit":1}', '{"seen":[]}'])
async def test_a_run_of_before_conflicts_with_nothing_new(env: Environment, recorded: str) -> None:
    """What it was not given is what the code says now, as it is for the run itself."""
    env.workflows = [job_with(1)]
    job = job_with(1).options(id="old")
    async with env:
        await env.app._opened.client.start("main", StartRequest("job", recorded, "old"))
        assert (await env.start(job)).run_id == (await env.start(job, 1)).run_id
        with pytest.raises(IdConflict):
            await env.start(job, 2)


async def test_a_child_finds_a_run_that_was_given_the_default(env: Environment) -> None:
    env.workflows = [calls_a_job, job_with(1)]
    async with env:
        other = await env.start(job_with(1).options(id="child"), 1)
        run = await env.start(calls_a_job)
        await env.settle()
        await other.signal(go, 1)
        assert await env.result(run) == [1, ["begun"]]


# What cannot be kept


@dataclass
class Config:
    retries: int = 3


MISSING = object()


@pytest.mark.parametrize("kind", [activity, workflow])
def test_a_default_that_cannot_be_kept_is_refused_at_once(kind: Any) -> None:
    """It would be refused with every call that relies on it, and with no other."""

    async def with_a_sentinel(limit: object = MISSING) -> None: ...
    async def with_a_moment(at=dt.datetime(2030, 1, 1)) -> None: ...  # type: ignore[no-untyped-def]  # on purpose  # noqa: ANN001, DTZ001
    async def with_nothing(limit: int = None) -> None: ...  # type: ignore[assignment]  # people write it  # noqa: RUF013
    async def with_a_tuple(sizes: list[int] = (1, 2)) -> None: ...  # type: ignore[assignment]  # on purpose
    async def with_infinity(limit: float = float("inf")) -> None: ...

    for fn, name, words in (
        (with_a_sentinel, "limit", "object values cannot be written as JSON.*use None"),
        (with_a_moment, "at", "come back as datetime only under an annotation; annotate"),
        (with_nothing, "limit", r"annotate it as `int \| None`"),
        (with_a_tuple, "sizes", "tuple would come back as list"),
        (with_infinity, "limit", "inf has no place in JSON"),
    ):
        with pytest.raises(BadValue, match=f"{fn.__name__}.*default of {name!r}.*{words}"):
            kind(fn)


@activity
async def shows(
    day: dt.date = dt.date(2030, 1, 2),
    /,
    config: Config = Config(),  # noqa: B008 - each call gets a copy
    *rest: int,
    ratio: float = 1,
    **others: int,
) -> list[str]:
    return [repr(each) for each in (day, config, rest, ratio, others)]


@workflow
async def shows_twice(late: "Late | None" = None) -> list[list[str]]:
    return [await shows(), await shows(dt.date(2031, 1, 2), Config(4), 5, more=6)]


@dataclass
class Late:
    x: int


async def test_defaults_of_all_kinds_are_kept(env: Environment) -> None:
    async with env:
        plain, given = await env.result(await env.start(shows_twice))
    assert plain == ["datetime.date(2030, 1, 2)", "Config(retries=3)", "()", "1.0", "{}"]
    assert given == ["datetime.date(2031, 1, 2)", "Config(retries=4)", "(5,)", "1.0", "{'more': 6}"]
