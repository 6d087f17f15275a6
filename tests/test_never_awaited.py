"""A durable call that nobody awaits never runs: the run says so at its end, and where the call was made."""

import asyncio
import gc
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

import pytest

from perdure import (
    Deferred,
    NeverAwaited,
    Request,
    RunFailed,
    Signal,
    Status,
    activity,
    continue_as_new,
    interrupted,
    select,
    sleep,
    unwind,
    workflow,
)
from perdure.testing import Environment

proceed = Signal("proceed", int)
kept: list[Any] = []


@activity
async def pays(amount: int) -> int:
    return amount


@activity(queue="elsewhere")
async def pays_elsewhere(amount: int) -> int:
    return amount


@workflow
async def pays_as_a_child(amount: int) -> int:
    return await pays(amount)


def line_of(text: str) -> int:
    lines = Path(__file__).read_text().splitlines()
    return next(number for number, line in enumerate(lines, 1) if "# " in line and line.endswith(f" {text}"))


@workflow
async def forgets(how: str) -> str:  # noqa: C901 - one case after the other
    await pays(1)
    match how:
        case "a statement":
            pays(2)  # type: ignore[unused-coroutine]  # noqa: RUF100 - a statement
        case "a variable":
            _ = pays(2)  # a variable
        case "a child":
            _ = pays_as_a_child(2)  # a child
        case "a task":
            _ = pays_elsewhere(2)  # a task
        case "an options copy":
            _ = pays.options(timeout=5)(2)  # an options copy
        case "overwritten":
            call = pays(2)  # overwritten
            call = pays(3)
            await call
        case "before a cancellation":
            pays(2)  # type: ignore[unused-coroutine]  # noqa: RUF100 - before a cancellation
            await select(first=pays(3), second=sleep(5))
        case "after a cancellation":
            await select(first=pays(3), second=sleep(5))
            pays(2)  # type: ignore[unused-coroutine]  # noqa: RUF100 - after a cancellation
        case "beside a task that is left behind":
            kept.append(asyncio.create_task(asleep()))
            pays(2)  # type: ignore[unused-coroutine]  # noqa: RUF100 - beside a task that is left behind
        case "in a task of its own":

            async def inner() -> None:
                pays(2)  # type: ignore[unused-coroutine]  # noqa: RUF100 - in a task of its own

            await asyncio.create_task(inner())
        case "before a new run":
            _ = pays(2)  # before a new run
            await proceed.receive()
            continue_as_new("nothing")
    await proceed.receive()
    await pays(3)
    return how


@workflow
async def asks_the_call_itself(how: str) -> object:  # noqa: C901, PLR0911 - one case after the other
    two: Any = 2
    match how:
        case "if":
            return "paid" if pays(2) else "not"  # if
        case "if not":
            return "not" if not pays(2) else "paid"  # if not
        case "negated":
            return not pays(2)  # negated
        case "and":
            return pays(2) and two  # and
        case "compared with None":
            return pays(2) is None  # compared with None
        case "if is None":
            return "not" if pays(2) is None else "paid"  # if is None
        case "equals a name":
            return pays(2) == two  # equals a name
        case "equals an attribute":
            return pays(2) == two.real  # equals an attribute
        case "equals the call":
            return two == pays(2)  # equals the call
        case "in a text":
            return f"paid {pays(2)}"[:4]  # in a text
        case "in a text, as written":
            return f"paid {pays(2)!r}"[:4]  # in a text, as written
    return how


ASKED = [
    *("if", "if not", "negated", "and", "compared with None", "if is None", "equals a name", "equals an attribute"),
    *("equals the call", "in a text", "in a text, as written"),
]


@pytest.mark.parametrize("how", ASKED)
async def test_a_call_that_is_taken_for_its_value_fails_the_run_at_its_line(env: Environment, how: str) -> None:
    """A call is always true and equals nothing: without its await an order of nothing in stock was shipped."""
    async with env:
        with pytest.raises(RunFailed, match=rf"{__file__}:{line_of(how)} in ") as caught:
            await env.run(asks_the_call_itself, how)
        assert isinstance(caught.value.__cause__, NeverAwaited)


WAYS = [
    *("a statement", "a variable", "a child", "a task", "an options copy", "overwritten"),
    *("before a cancellation", "in a task of its own", "before a new run"),
    *("after a cancellation", "beside a task that is left behind"),
]


@pytest.fixture(autouse=True)
def _forget() -> None:
    kept.clear()
    gc.collect()


@pytest.mark.parametrize("how", WAYS)
async def test_a_call_that_was_never_awaited_fails_the_run_at_its_line(env: Environment, how: str) -> None:
    """It looks as if it were done, and a warning at a line of ours tells nobody which call it was."""
    async with env:
        run = await env.start(forgets, how)
        await run.signal(proceed, 1)
        with pytest.raises(RunFailed, match="was never awaited") as caught:
            await env.result(run)
        error = caught.value.__cause__
        assert isinstance(error, NeverAwaited)
        name = {"a child": "workflow 'pays_as_a_child'", "a task": "activity 'pays_elsewhere'"}.get(
            how, "activity 'pays'"
        )
        assert error.call == name
        assert f"{__file__}:{line_of(how)} in " in error.where


async def test_the_verdict_is_the_same_after_a_replay(env: Environment) -> None:
    """The process that made the call may not be the one that ends the run."""
    async with env:
        run = await env.start(forgets, "a statement")
        await env.pass_time(60)
        assert (await run.describe()).status is Status.SUSPENDED
    async with env:
        run = await env.app.get(run.id, workflow=forgets)
        await run.signal(proceed, 1)
        with pytest.raises(RunFailed, match=rf"{__file__}:{line_of('a statement')} in forgets"):
            await env.result(run)


# What is no mistake


async def limited(gate: asyncio.Semaphore, call: Awaitable[int]) -> int:
    async with gate:
        return await call


@workflow
async def changes_its_mind(how: str) -> str:
    await pays(1)
    match how:
        case "closed":
            call: Any = pays(2)
            call.close()
        case "a task cancelled before it began":
            asyncio.create_task(pays(2)).cancel()
        case "a gathering cancelled before it began":
            asyncio.gather(pays(2), pays(3)).cancel()
        case "no time":
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(pays(2), 0)
        case "a task nobody awaits":
            kept.append(asyncio.create_task(pays(2)))
        case "waiting for their turn when cancelled":
            gate = asyncio.Semaphore(1)
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(5):
                    await asyncio.gather(limited(gate, asleep()), *(limited(gate, pays(n)) for n in range(3)))
        case "in a task that is left behind":
            gate = asyncio.Semaphore(1)
            kept.extend(asyncio.create_task(limited(gate, each)) for each in (asleep(), pays(2)))
            await pays(3)
        case "awaited much later":
            call = pays(2)
            await pays(3)
            await select(first=pays(4), second=sleep(5))
            await call
    return how


async def asleep() -> int:
    await sleep(60)
    return 1


@pytest.mark.parametrize(
    "how",
    [
        *("closed", "a task cancelled before it began", "a gathering cancelled before it began", "no time"),
        *("a task nobody awaits", "waiting for their turn when cancelled", "awaited much later"),
        "in a task that is left behind",
    ],
)
async def test_a_call_that_somebody_took_care_of_does_not_count(env: Environment, how: str) -> None:
    """Whoever closes a call, or cancels what would have awaited it, has not forgotten it."""
    async with env:
        run = await env.start(changes_its_mind, how)
        await env.pass_time(10)
        assert await env.result(run) == how


@workflow
async def fails_besides() -> None:
    _ = pays(2)
    raise ValueError("no luck")


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")
async def test_an_error_of_the_workflow_itself_is_what_is_told(env: Environment) -> None:
    """The call may be there because of it."""
    async with env:
        with pytest.raises(RunFailed, match="ValueError: no luck"):
            await env.result(await env.start(fails_besides))


async def checked(amount: int, call: Awaitable[int]) -> int:
    if amount > 1:
        raise ValueError(amount)
    return await call


@workflow
async def catches() -> str:
    try:
        await checked(2, pays(2))
    except ValueError:
        return "too much"
    return "paid"


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")
async def test_a_call_that_an_error_kept_from_being_awaited_does_not_count(env: Environment) -> None:
    """Somebody else was to await it; the workflow knows what became of that."""
    async with env:
        assert await env.result(await env.start(catches)) == "too much"


async def test_python_still_tells_of_coroutines_that_are_not_ours(env: Environment) -> None:
    """At the line where they were dropped: the whole process goes through what finds ours."""
    async with env:
        with pytest.warns(RuntimeWarning, match="coroutine 'asleep' was never awaited") as told:
            asleep()  # type: ignore[unused-coroutine]  # dropped here
        assert (told[0].filename, told[0].lineno) == (__file__, line_of("dropped here"))


@workflow(name="never_awaited_waits")
async def forgets_to_wait(how: str) -> str:
    match how:
        case "unwind":
            unwind()  # type: ignore[unused-coroutine]
        case "sleep":
            sleep(5)  # type: ignore[unused-coroutine]
        case "interrupted":
            interrupted()  # type: ignore[unused-coroutine]
        case "wait":
            Deferred("forgotten", int).wait()  # type: ignore[unused-coroutine]
        case "asked":
            Request("forgotten", int, int).receive()  # type: ignore[unused-coroutine]
        case _:
            proceed.receive()  # type: ignore[unused-coroutine]
    return "done"


@pytest.mark.parametrize("how", ["unwind", "sleep", "interrupted", "wait", "asked", "receive"])
async def test_a_wait_that_nobody_awaits_fails_the_run(env: Environment, how: str) -> None:
    async with env:
        with pytest.raises(RunFailed, match=r"in forgets_to_wait: the call of \w+\(\) was never awaited"):
            await env.run(forgets_to_wait, how)
