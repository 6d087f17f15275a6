"""Undo: a run that does not end well takes back what it has done, newest first, before it is closed."""

import asyncio
import contextlib
from datetime import timedelta
from typing import Any

import pytest

from perdure import (
    BadArguments,
    BadOption,
    BadValue,
    NotInWorkflow,
    Retry,
    Run,
    RunCancelled,
    RunFailed,
    RunTerminated,
    RunTimedOut,
    Signal,
    Status,
    activity,
    continue_as_new,
    sleep,
    undo,
    unwind,
    workflow,
)
from perdure.testing import Environment

go = Signal("go", str)
undone: list[str] = []


@pytest.fixture(autouse=True)
def _nothing_undone() -> None:
    undone.clear()


@activity
async def reserve_held(what: str) -> str:
    return f"held {what}"


@activity
async def release(held: str) -> None:
    undone.append(held)


@activity(retry=Retry(max_attempts=2, initial_interval=1))
async def release_in_vain(held: str) -> None:
    undone.append(f"{held}?")
    raise LookupError(f"no {held}")


@workflow
async def release_slowly(held: str) -> str:
    await sleep(timedelta(hours=1))
    await release(held)
    return held


async def undos(run: Run[Any]) -> list[tuple[str | None, str]]:
    return [(each.name, each.state) for each in (await run.describe()).undo]


async def kinds(env: Environment, run: Run[Any]) -> list[str]:
    return [f"{event.kind} {event.place}".strip() for event in await env.events(run.id)]


# The end of the code


@workflow
async def fails_after(things: list[str]) -> None:
    for thing in things:
        undo(release, await reserve_held(thing))
    raise ValueError("no money")


@workflow
async def waits_after(things: list[str]) -> str:
    for thing in things:
        undo(release, await reserve_held(thing))
    return await go.receive()


async def test_what_was_done_is_undone_newest_first_when_the_code_fails(env: Environment) -> None:
    """An order that fails half-way leaves nothing booked."""
    async with env:
        run = await env.start(fails_after, ["hotel", "flight"])
        with pytest.raises(RunFailed, match="no money"):
            await env.result(run)

        assert undone == ["held flight", "held hotel"]
        assert (await kinds(env, run))[-3:] == [
            "ActivityCompleted undo/release",
            "ActivityCompleted undo/release#2",
            "RunFailed",
        ]
        assert await undos(run) == [("release", "done"), ("release", "done")]


async def test_a_run_that_returns_undoes_nothing(env: Environment) -> None:
    async with env:
        run = await env.start(waits_after, ["hotel"])
        await run.signal(go, "booked")

        assert await env.result(run) == "booked"
        assert undone == []
        assert await undos(run) == []


@workflow
async def catches_and_goes_on(thing: str) -> str:
    try:
        undo(release, await reserve_held(thing))
        await release_in_vain("money")
    except LookupError as error:
        return str(error)
    return "no error"


async def test_an_error_that_the_code_catches_undoes_nothing(env: Environment) -> None:
    async with env:
        assert await env.run(catches_and_goes_on, "hotel") == "no money"
        assert undone == ["money?", "money?"]


async def test_a_cancelled_run_is_undone_before_it_is_closed(env: Environment) -> None:
    async with env:
        run = await env.start(waits_after, ["hotel", "flight"])
        await env.settle()
        await run.cancel("changed my mind")
        with pytest.raises(RunCancelled, match="changed my mind"):
            await env.result(run)

        assert undone == ["held flight", "held hotel"]
        assert (await run.describe()).status is Status.CANCELLED


@workflow
async def undoes_by_a_child(thing: str) -> None:
    undo(release_slowly, await reserve_held(thing))
    undo(release.options(key="k"), "a key")
    raise ValueError("no money")


async def test_a_workflow_undoes_as_a_child_and_may_wait(env: Environment) -> None:
    async with env:
        run = await env.start(undoes_by_a_child.options(id="r"), "hotel")
        await env.pass_time(60)
        assert (await run.describe()).status is Status.SUSPENDED
        assert await undos(run) == [("release", "done"), ("release_slowly", "waiting")]
        with pytest.raises(RunFailed, match="no money"):
            await env.result(run)

        assert undone == ["a key", "held hotel"]
        places = [event.place for event in await env.events("r")]
        assert places[-3:] == ["undo/release(k)", "undo/release_slowly", ""]


@workflow
async def fails_in_a_branch() -> None:
    async def book(thing: str, delay: float) -> None:
        await sleep(delay)
        undo(release, await reserve_held(thing))
        await sleep(delay)
        raise ValueError(thing)

    await asyncio.gather(book("late", 3), book("early", 2), book("never", 60))


async def test_branches_share_the_stack_and_are_over_before_it_is_unwound(env: Environment) -> None:
    """What another branch would go on to do could never be undone."""
    async with env:
        run = await env.start(fails_in_a_branch)
        with pytest.raises(RunFailed, match="early"):
            await env.result(run)

        assert undone == ["held late", "held early"]


@workflow
async def fails_beside_a_branch() -> None:
    async def go_on() -> None:
        await sleep(60)
        undo(release, "too late")

    undo(release_slowly, "first")
    branch = asyncio.create_task(go_on())
    await sleep(1)
    raise ValueError(f"no money, {branch.done()}")


async def test_no_branch_goes_on_while_a_run_is_unwound(env: Environment) -> None:
    """It would book again what is just being undone."""
    async with env:
        run = await env.start(fails_beside_a_branch)
        with pytest.raises(RunFailed, match="no money, False"):
            await env.result(run)

        assert undone == ["first"]


@workflow
async def returns_what_nobody_can_keep() -> object:
    undo(release, "hotel")
    return object()


async def test_a_result_that_cannot_be_kept_is_an_error_too(env: Environment) -> None:
    async with env:
        run = await env.start(returns_what_nobody_can_keep)
        with pytest.raises(RunFailed):
            await env.result(run)

        assert undone == ["hotel"]


# Failures


@workflow
async def undoes_in_vain(then: str) -> None:
    undo(release, "first")
    undo(release_in_vain, "second")
    undo(release, "third")
    if then == "fail":
        raise ValueError("no money")
    await sleep(timedelta(days=1))


async def test_one_that_fails_for_good_does_not_stop_the_next(env: Environment) -> None:
    async with env:
        run = await env.start(undoes_in_vain, "fail")
        with pytest.raises(RunFailed, match="no money") as caught:
            await env.result(run)

        assert undone == ["third", "second?", "second?", "first"]
        assert await undos(run) == [("release", "done"), ("release_in_vain", "failed"), ("release", "done")]
        assert (await run.describe()).undo[1].error == "LookupError: no second"
        assert isinstance(caught.value.__cause__, ValueError)
        assert caught.value.__cause__.__notes__ == ["undo release_in_vain failed: LookupError: no second"]


@workflow
async def calls_what_is_undone(then: str, timeout: int | None) -> list[str]:
    try:
        async with asyncio.timeout(60 if then == "cancel" else None):
            await undoes_in_vain.options(timeout=timeout)(then)
    except Exception as error:  # noqa: BLE001 - whatever the child raises
        return getattr(error, "__notes__", [])
    return []


@pytest.mark.parametrize("then", ["fail", "time out"])
async def test_a_parent_finds_the_failures_as_notes_of_the_error(env: Environment, then: str) -> None:
    async with env:
        notes = await env.run(calls_what_is_undone, then, 30 if then == "time out" else None)

        assert notes == ["undo release_in_vain failed: LookupError: no second"]


async def test_the_error_of_a_cancelled_run_carries_the_failures(env: Environment) -> None:
    async with env:
        run = await env.start(undoes_in_vain, "wait")
        await env.settle()
        await run.cancel("stop")
        with pytest.raises(RunCancelled) as caught:
            await env.result(run)

        assert caught.value.__notes__ == ["undo release_in_vain failed: LookupError: no second"]


# Crashes


async def test_killed_while_unwinding_recorded_undos_are_not_repeated(env: Environment) -> None:
    async with env:
        run = await env.start(undoes_by_a_child.options(id="r"), "hotel")
        await env.pass_time(60)
        await env.crash()
        run = await env.app.get("r", workflow=undoes_by_a_child)
        with pytest.raises(RunFailed, match="no money"):
            await env.result(run)

        assert undone == ["a key", "held hotel"]


# By hand


@workflow
async def begins_anew() -> str:
    undo(release, "first")
    kept = undo(release, "kept")
    undo(release_in_vain, "second")
    kept.drop()
    await unwind()
    kept.drop()
    undo(release, "third")
    await unwind()
    await unwind()
    return "went on"


async def test_unwind_undoes_everything_so_far_and_goes_on(env: Environment) -> None:
    async with env:
        run = await env.start(begins_anew)
        assert await env.result(run) == "went on"

        assert undone == ["second?", "second?", "first", "third"]
        assert await undos(run) == [("release_in_vain", "failed"), ("release", "done"), ("release", "done")]
        places = [event.place for event in await env.events(run.id) if event.place]
        assert places == ["undo/release_in_vain", "undo/release", "undo#2/release"]


@workflow
async def unwinds_slowly() -> None:
    undo(release, "first")
    undo(release_slowly, "second")
    async with asyncio.timeout(10):
        await unwind()


async def test_a_cancellation_while_unwinding_is_felt_when_that_is_over(env: Environment) -> None:
    async with env:
        run = await env.start(unwinds_slowly)
        with pytest.raises(RunFailed, match="TimeoutError"):
            await env.result(run)

        assert undone == ["second", "first"]


@workflow
async def unwinds_in_two_branches() -> None:
    async def another() -> None:
        await sleep(60)
        undo(release, "second")
        await unwind()

    undo(release_slowly, "first")
    await asyncio.gather(unwind(), another())


async def test_two_branches_that_unwind_take_turns(env: Environment) -> None:
    """Two that undo at the same time could take back in the wrong order what belongs together."""
    async with env:
        await env.run(unwinds_in_two_branches)
        assert undone == ["first", "second"]


@workflow
async def drops_while_unwinding() -> None:
    kept = undo(release, "kept")
    undo(release_slowly, "first")

    async def drop() -> None:
        await sleep(60)
        kept.drop()

    await asyncio.gather(unwind(), drop())


async def test_what_is_dropped_before_its_turn_is_not_undone(env: Environment) -> None:
    async with env:
        await env.run(drops_while_unwinding)
        assert undone == ["first"]


@workflow
async def drops_all() -> None:
    undo(release, "first").drop()
    raise ValueError("no money")


async def test_what_is_dropped_is_forgotten(env: Environment) -> None:
    async with env:
        run = await env.start(drops_all)
        with pytest.raises(RunFailed, match="no money"):
            await env.result(run)

        assert undone == []
        assert await undos(run) == []


# Being stopped


async def test_a_cancel_while_unwinding_changes_nothing(env: Environment) -> None:
    async with env:
        run = await env.start(undoes_by_a_child, "hotel")
        await env.settle()
        await run.cancel("too late")
        with pytest.raises(RunFailed, match="no money"):
            await env.result(run)

        assert undone == ["a key", "held hotel"]


async def test_a_deadline_ends_the_unwinding_and_lists_what_is_left(env: Environment) -> None:
    async with env:
        run = await env.start(undoes_by_a_child, "hotel")
        await env.settle()
        await run.cancel("enough", deadline=60)
        with pytest.raises(RunCancelled, match="enough"):
            await env.result(run)

        assert await undos(run) == [("release", "done"), ("release_slowly", "left")]
        await env.pass_time(timedelta(hours=2))
        assert undone == ["a key"]


@pytest.mark.parametrize("is_parked", [False, True])
@pytest.mark.parametrize("how", ["terminate", "force"])
async def test_a_run_that_is_ended_at_once_lists_what_is_left(env: Environment, how: str, *, is_parked: bool) -> None:
    async with env:
        run = await env.start(waits_after, ["hotel", "flight"])
        await env.pass_time(60 if is_parked else 0)
        await (run.terminate("enough") if how == "terminate" else run.cancel("enough", force=True))
        with pytest.raises(RunTerminated if how == "terminate" else RunCancelled):
            await env.result(run)

        assert undone == []
        assert await undos(run) == [("release", "left"), ("release", "left")]


async def test_what_nobody_has_written_down_is_left_as_unknown(env: Environment) -> None:
    async with env:
        run = await env.start(waits_after.options(id="r"), ["hotel"])
        await env.settle()
        await env.crash()
        env.workflows = []
        await env.crash()
        await env.pass_time(5)
        run = await env.app.get("r", workflow=waits_after)
        await run.terminate()
        with pytest.raises(RunTerminated):
            await env.result(run)

        assert await undos(run) == [(None, "left")]


# Out of time


@workflow
async def waits_then_fails() -> None:
    undo(release, await reserve_held("hotel"))
    undo(release, await reserve_held("flight"))
    await sleep(timedelta(days=1))


@pytest.mark.parametrize("timeout", [5, 60], ids=["live", "parked"])
async def test_a_run_out_of_time_is_undone_before_it_is_closed(env: Environment, timeout: int) -> None:
    async with env:
        run = await env.start(waits_then_fails.options(timeout=timeout))
        with pytest.raises(RunTimedOut, match="longer than its timeout"):
            await env.result(run)

        assert undone == ["held flight", "held hotel"]
        assert (await kinds(env, run))[-4:] == [
            "TimeoutReached",
            "ActivityCompleted undo/release",
            "ActivityCompleted undo/release#2",
            "RunTimedOut",
        ]


async def test_while_unwinding_the_timeout_does_not_ring(env: Environment) -> None:
    """Nobody could say how long it takes to undo; that is not what the timeout was for."""
    async with env:
        run = await env.start(undoes_by_a_child.options(timeout=60), "hotel")
        with pytest.raises(RunFailed, match="no money"):
            await env.result(run)

        assert undone == ["a key", "held hotel"]


@workflow
async def times_out_slowly() -> None:
    undo(release_slowly, "hotel")
    await sleep(timedelta(days=1))


async def test_out_of_time_and_killed_while_unwinding_it_goes_on_where_it_was(env: Environment) -> None:
    async with env:
        await env.start(times_out_slowly.options(id="r", timeout=60))
        await env.pass_time(100)
        await env.crash()
        await env.pass_time(100)
        run = await env.app.get("r", workflow=times_out_slowly)
        assert (await run.describe()).status is Status.SUSPENDED
        with pytest.raises(RunTimedOut):
            await env.result(run)

        assert undone == ["hotel"]
        assert [kind.split()[0] for kind in await kinds(env, run)] == [
            "RunStarted",
            "TimeoutReached",
            "ChildCompleted",
            "RunTimedOut",
        ]


async def test_an_overdue_run_with_a_stack_waits_for_a_worker_with_its_code(env: Environment) -> None:
    """Whoever closes it without its code would leave everything booked."""
    async with env:
        await env.start(waits_then_fails.options(id="r", timeout=60))
        await env.start(waits_after.options(id="without", timeout=60), [])
        await env.pass_time(30)
        known, env.workflows = env.workflows, []
        await env.crash()
        await env.pass_time(100)
        run = await env.app.get("r", workflow=waits_then_fails)
        assert (await run.describe()).closed_at is None
        assert (await (await env.app.get("without")).describe()).status is Status.TIMED_OUT
        env.workflows = known
        await env.crash()
        run = await env.app.get("r", workflow=waits_then_fails)
        with pytest.raises(RunTimedOut):
            await env.result(run)

        assert undone == ["held flight", "held hotel"]


async def test_a_deadline_ends_an_overdue_run_without_its_code(env: Environment) -> None:
    async with env:
        await env.start(waits_then_fails.options(id="r", timeout=60))
        await env.pass_time(30)
        env.workflows = []
        await env.crash()
        await env.pass_time(100)
        run = await env.app.get("r", workflow=waits_then_fails)
        await run.cancel("enough", deadline=60)
        with pytest.raises(RunCancelled, match="enough"):
            await env.result(run)

        assert await undos(run) == [("release", "left"), ("release", "left")]


# Paused


async def test_a_paused_run_out_of_time_is_undone_when_it_goes_on(env: Environment) -> None:
    """Nothing of a paused run begins, so nobody may close it either with everything still booked."""
    async with env:
        held = await env.start(waits_then_fails.options(id="held", timeout=60))
        await env.settle()
        await held.pause()
        await env.settle()
        await env.pass_time(100)
        assert await undos(held) == [("release", "waiting"), ("release", "waiting")]
        assert (await held.describe()).held == "paused"
        await env.crash()
        await env.pass_time(100)
        held = await env.app.get("held", workflow=waits_then_fails)
        assert (await held.describe()).closed_at is None
        await held.resume()
        with pytest.raises(RunTimedOut, match="longer than its timeout"):
            await env.result(held)

        assert undone == ["held flight", "held hotel"]


async def test_a_paused_run_out_of_time_is_ended_by_a_deadline(env: Environment) -> None:
    async with env:
        run = await env.start(waits_then_fails.options(timeout=60))
        await env.settle()
        await run.pause()
        await env.pass_time(100)
        await run.cancel("enough", deadline=60)
        with pytest.raises(RunCancelled, match="enough"):
            await env.result(run)

        assert await undos(run) == [("release", "left"), ("release", "left")]


@pytest.mark.parametrize("is_killed", [False, True], ids=["alive", "killed"])
@pytest.mark.parametrize("is_late", [False, True], ids=["failed", "out of time"])
async def test_a_run_that_is_paused_while_unwinding_goes_on_with_it(
    env: Environment, *, is_late: bool, is_killed: bool
) -> None:
    """Its timeout is over, or passes meanwhile: neither ends what it has half undone."""
    async with env:
        if is_late:
            run: Run[Any] = await env.start(times_out_slowly.options(id="r", timeout=60))
            await env.pass_time(100)
        else:
            run = await env.start(undoes_by_a_child.options(id="r", timeout=60), "hotel")
            await env.settle()
        await run.pause()
        await env.settle()
        await env.pass_time(100)
        assert (await run.describe()).held == "paused"
        if is_killed:
            await env.crash()
        await env.pass_time(timedelta(hours=2))
        run = await env.app.get("r")
        assert (await run.describe()).closed_at is None
        await run.resume()
        with pytest.raises(RunTimedOut if is_late else RunFailed):
            await env.result(run)

        assert undone == (["hotel"] if is_late else ["a key", "held hotel"])
        assert {state for _, state in await undos(run)} == {"done"}


@workflow
async def returns_beside_a_branch() -> str:
    undo(release, await reserve_held("hotel"))
    beside = asyncio.ensure_future(reserve_at("slow gate"))
    gate = await reserve_at("gate")
    return f"{gate}, {beside.done()}"


@activity
async def reserve_at(gate: str) -> str:
    await gates.setdefault(gate, asyncio.Event()).wait()
    return gate


gates: dict[str, asyncio.Event] = {}


async def test_code_that_has_returned_but_is_out_of_time_before_it_is_closed_is_undone(env: Environment) -> None:
    """The end of a run that is to be paused is not written, so its timeout comes first; its next owner must agree."""
    gates.clear()
    async with env:
        run = await env.start(returns_beside_a_branch.options(id="r", timeout=60))
        await env.settle()
        await run.pause()
        await env.settle()
        gates["gate"].set()
        await env.pass_time(100)
        assert "TimeoutReached" in await kinds(env, run)
        await env.crash()
        await env.settle()
        gates["slow gate"].set()
        await env.settle()
        run = await env.app.get("r", workflow=returns_beside_a_branch)
        assert (await run.describe()).held == "paused"
        await run.resume()
        with pytest.raises(RunTimedOut):
            await env.result(run)

        assert undone == ["held hotel"]


async def test_code_that_returns_when_its_time_is_over_is_undone_all_the_same(env: Environment) -> None:
    async with env:
        run = await env.start(shrugs.options(timeout=5))
        with pytest.raises(RunTimedOut):
            await env.result(run)

        assert undone == ["hotel"]


@workflow
async def shrugs() -> str:
    undo(release, "hotel")
    with contextlib.suppress(asyncio.CancelledError):
        await sleep(timedelta(days=1))
    return "whatever"


# Continuing, and mistakes


@workflow
async def continues(how: str) -> str:
    if how == "done":
        return "done"
    undo(release, "first")
    undo(release_slowly, "second")
    try:
        if how == "after unwinding":
            await unwind()
        continue_as_new("done")
    finally:
        if how == "on the way out":
            undo(release, "third")


async def test_a_run_with_something_to_undo_cannot_continue_as_a_new_one(env: Environment) -> None:
    async with env:
        run = await env.start(continues, "at once")
        with pytest.raises(RunFailed, match=r"BadOption: .* release_slowly, release; drop\(\) it or await unwind\(\)"):
            await env.result(run)

        assert undone == ["second", "first"]


@workflow
async def continues_and_registers(how: str) -> str:
    if how == "done":
        return "done"
    try:
        continue_as_new("done")
    finally:
        undo(release, "third")


async def test_what_is_registered_on_the_way_out_is_found_as_well(env: Environment) -> None:
    async with env:
        run = await env.start(continues_and_registers, "at once")
        with pytest.raises(RunFailed, match="BadOption: .* release"):
            await env.result(run)

        assert undone == ["third"]


async def test_with_nothing_left_to_undo_a_run_continues(env: Environment) -> None:
    async with env:
        assert await env.run(continues, "after unwinding") == "done"


@workflow
async def mistakes(how: str) -> str:
    given: Any = {"type": (release, 7), "function": (print, "x"), "missing": (release,)}[how]
    undo(*given)
    return "no"


@pytest.mark.parametrize(("how", "error"), [("type", BadValue), ("missing", BadArguments), ("function", BadOption)])
async def test_a_mistake_is_told_where_it_is_made(env: Environment, how: str, error: type[Exception]) -> None:
    async with env:
        with pytest.raises(RunFailed, match=error.__name__):
            await env.run(mistakes, how)


@workflow(name="undo_called_too_early")
async def calls_too_early() -> None:
    given: Any = release("x")
    undo(given)


async def test_a_function_that_was_called_already_is_not_registered(env: Environment) -> None:
    async with env:
        with pytest.raises(RunFailed, match=r"write `undo\(refund, order\)`, not `undo\(refund\(order\)\)`"):
            await env.run(calls_too_early)


async def test_outside_a_workflow_there_is_nothing_to_undo() -> None:
    with pytest.raises(NotInWorkflow, match=r"undo\(\)"):
        undo(release, "x")
    with pytest.raises(NotInWorkflow, match=r"unwind\(\)"):
        await unwind()
