"""Children: runs that a workflow starts by calling another workflow."""

import asyncio
from datetime import timedelta
from pathlib import Path

import pytest

from perdure import (
    ChildFailed,
    IdConflict,
    Perdure,
    RunCancelled,
    RunFailed,
    RunTerminated,
    RunTimedOut,
    Signal,
    Status,
    activity,
    continue_as_new,
    sleep,
    workflow,
)
from perdure.testing import Environment

go = Signal("go", int)
cleaned: list[str] = []


@activity
async def doubled_by_child(number: int) -> int:
    return number * 2


@activity
async def tidied(name: str) -> None:
    cleaned.append(name)


@workflow
async def doubles(number: int) -> int:
    return await doubled_by_child(number)


@workflow
async def waits_to_go(name: str) -> int:
    try:
        return await go.receive()
    except asyncio.CancelledError as cancelled:
        await tidied(f"{name}: {cancelled}")
        raise


@workflow
async def fails_as_child() -> None:
    raise KeyError("no such shelf")


@workflow
async def fails_strangely() -> None:
    class LocalError(Exception):
        pass

    raise LocalError("of no module")


@workflow
async def adds_children_up(count: int) -> int:
    return sum(await asyncio.gather(*(doubles(number) for number in range(count))))


@workflow
async def has_one(name: str) -> int:
    return await waits_to_go(name)


@workflow
async def has_grandchildren(name: str) -> int:
    return await has_one(name)


@workflow
async def minds_its_child(which: str) -> str:
    try:
        await {"fails": fails_as_child, "strange": fails_strangely}[which]()
    except KeyError as error:
        return f"KeyError {error}"
    except ChildFailed as error:
        return str(error)
    return "fine"


@workflow
async def reports_its_child() -> str:
    try:
        return str(await waits_to_go.options(id="the-child", timeout=300)("x"))
    except (RunCancelled, RunTerminated, RunTimedOut) as error:
        return f"{type(error).__name__}: {error.reason}"


@workflow
async def gives_up_on_its_child() -> str:
    try:
        async with asyncio.timeout(10):
            await waits_to_go("late")
    except TimeoutError:
        await sleep(1)
        return "gave up"
    return "no"


@workflow
async def leaves_a_child_behind(policy: str) -> str:
    child = waits_to_go.options(id="left", on_parent_close=policy)  # type: ignore[arg-type]  # a table of them
    task = asyncio.ensure_future(child("left"))
    await sleep(1)
    return "bye" if not task.done() else "no"


@workflow
async def shares_a_child(id: str) -> int:
    return await doubles.options(id=id)(4)


async def test_a_child_is_called_like_a_function(env: Environment) -> None:
    async with env:
        run = await env.start(adds_children_up.options(id="sum"), 4)
        assert await env.result(run) == 12
        children = await run.children()
        assert sorted(child.id for child in children) == [
            "sum/doubles#2/doubles",
            "sum/doubles#3/doubles",
            "sum/doubles#4/doubles",
            "sum/doubles/doubles",
        ]
        assert {child.parent_id for child in children} == {run.run_id}
        assert [event.kind for event in await env.events("sum")] == [
            "RunStarted",
            *["ChildCompleted"] * 4,
            "RunCompleted",
        ]


@pytest.mark.parametrize(
    ("which", "said"),
    [("fails", "KeyError 'no such shelf'"), ("strange", "child run 'm/fails_strangely' of 'fails_strangely' failed: ")],
)
async def test_a_failed_child_raises_its_own_error(env: Environment, which: str, said: str) -> None:
    async with env:
        run = await env.start(minds_its_child.options(id="m"), which)
        assert (await env.result(run)).startswith(said)


async def test_a_child_that_fails_unminded_fails_its_parent(env: Environment) -> None:
    async with env:
        run = await env.start(shares_a_child.options(id="a"), "a")
        with pytest.raises(RunFailed, match="the run 'a' cannot wait for itself"):
            await env.result(run)


async def test_cancel_goes_down_to_the_grandchildren_with_its_reason(env: Environment) -> None:
    async with env:
        cleaned.clear()
        run = await env.start(has_grandchildren.options(id="top"), "g")
        await env.settle()
        await run.cancel("the customer changed her mind")
        with pytest.raises(RunCancelled, match="the customer changed her mind"):
            await env.result(run)
        await env.settle()
        assert cleaned == ["g: the customer changed her mind"]
        for id in ("top", "top/has_one", "top/has_one/waits_to_go"):
            handle = await env.app.get(id)
            assert (await handle.describe()).status is Status.CANCELLED
            requests = [event.body async for event in handle.events() if event.kind == "CancelRequested"]
            assert requests == [{"reason": "the customer changed her mind"}]


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("cancel", "RunCancelled: enough"),
        ("terminate", "RunTerminated: enough"),
        ("time", "RunTimedOut: it took longer than its timeout of 300 s"),
    ],
)
async def test_how_a_child_was_stopped_reaches_its_parent(env: Environment, how: str, said: str) -> None:
    async with env:
        run = await env.start(reports_its_child)
        await env.settle()
        child = await env.app.get("the-child")
        if how != "time":
            await getattr(child, how)("enough")
        assert await env.result(run) == said


async def test_a_child_nobody_waits_for_any_more_is_cancelled(env: Environment) -> None:
    async with env:
        cleaned.clear()
        run = await env.start(gives_up_on_its_child.options(id="impatient"))
        assert await env.result(run) == "gave up"
        assert cleaned == ["late: its parent 'impatient' does not wait for it any more"]


@pytest.mark.parametrize(
    ("policy", "status"),
    [("cancel", Status.CANCELLED), ("terminate", Status.TERMINATED), ("abandon", None)],
)
async def test_what_becomes_of_a_child_when_its_parent_ends(
    env: Environment, policy: str, status: Status | None
) -> None:
    async with env:
        run = await env.start(leaves_a_child_behind, policy)
        assert await env.result(run) == "bye"
        await env.settle()
        left = await (await env.app.get("left")).describe()
        assert (left.status if left.closed_at else None) == status


@workflow
async def sends_one_off(when: str) -> str:
    child = doubles.options(id="sent off", on_parent_close="abandon")
    task = asyncio.create_task(child(3))
    await (doubled_by_child(1) if when == "with a step" else asyncio.sleep(0))
    return "bye" if not task.done() else "no"


@pytest.mark.parametrize("when", ["with a step", "at the end"])
async def test_a_child_that_outlives_its_parent_is_started_though_that_ends_at_once(
    env: Environment, when: str
) -> None:
    async with env:
        assert await env.result(await env.start(sends_one_off, when)) == "bye"
        assert await env.result(await env.app.get("sent off")) == 6


async def test_children_survive_the_crash_of_their_parent(env: Environment) -> None:
    """The child ends while nobody is there to hear of it; its message waits."""
    async with env:
        run = await env.start(has_one.options(id="p"), "p")
        await env.settle()
        await env.crash()
        child = await env.app.get("p/waits_to_go")
        await child.signal(go, 5)
        parent = await env.app.get("p")
        assert await env.result(parent) == 5
        assert len(await parent.children()) == 1
        assert run == parent


async def test_a_parked_parent_wakes_when_its_child_ends(env: Environment) -> None:
    async with env:
        run = await env.start(has_one.options(id="p"), "p")
        await env.pass_time(30)
        await env.pass_time(30)
        info = await run.describe()
        assert info.status is Status.SUSPENDED
        assert [(wait.kind, wait.name) for wait in info.waiting_for] == [("child", "p/waits_to_go")]
        await (await env.app.get("p/waits_to_go")).signal(go, 9)
        assert await env.result(run) == 9


async def test_a_child_whose_id_is_taken_by_an_equal_run_waits_for_that(env: Environment) -> None:
    async with env:
        other = await env.start(doubles.options(id="shared"), 4)
        run = await env.start(shares_a_child, "shared")
        assert await env.result(run) == 8
        assert (await other.describe()).parent_id is None
        assert len(await run.children()) == 0


@workflow
async def waits_for_the_common_one() -> int:
    return await doubles_late.options(id="common")(21)


@workflow
async def doubles_late(number: int) -> int:
    await sleep(5)
    return number * 2


@pytest.mark.parametrize("max_live", [1, 3])
async def test_runs_that_wait_for_one_they_did_not_start_make_room_for_it(tmp_path: Path, max_live: int) -> None:
    """Else they would fill the worker, and wait for ever for what finds no room."""
    async with Environment(str(tmp_path / "t.db"), max_live=max_live) as env:
        runs = [await env.start(waits_for_the_common_one) for _ in range(6)]
        assert [await env.result(run) for run in runs] == [42] * 6


@workflow
async def starts_a_late_child() -> int:
    return await waits_to_go.options(id="late", delay=3600)("never")


@pytest.mark.parametrize("how", ["cancel", "terminate"])
async def test_a_child_that_has_not_begun_is_closed_with_its_parent(env: Environment, how: str) -> None:
    cleaned.clear()
    async with env:
        run = await env.start(starts_a_late_child)
        await env.settle()
        await getattr(run, how)("enough")
        await env.pass_time(1)
        child = await (await env.app.get("late")).describe()
        assert (child.status, child.error) == (
            Status.CANCELLED if how == "cancel" else Status.TERMINATED,
            "enough",
        )
        assert cleaned == []


async def test_terminate_reaches_parked_children_with_no_worker_alive(tmp_path: Path) -> None:
    path = str(tmp_path / "t.db")
    async with Environment(path) as env:
        await env.start(has_grandchildren.options(id="top"), "t")
        await env.pass_time(30)
    async with Environment(path, clock=env.clock, worker=False) as client:
        await (await client.app.get("top")).terminate("fire")
        ids = ("top", "top/has_one", "top/has_one/waits_to_go")
        statuses = [(await (await client.app.get(id)).describe()).status for id in ids]
        assert statuses == [Status.TERMINATED] * 3


async def test_a_parent_of_thousands_is_cancelled_without_ado(tmp_path: Path) -> None:
    """One look at all children for each of them would take minutes."""
    async with Environment(str(tmp_path / "t.db")) as env:
        run = await env.start(has_many, 1500)
        await env.settle()
        await run.cancel("all of you")
        await env.settle()
        assert (await run.describe()).status is Status.CANCELLED
        assert len(await env.app.list(status="cancelled", limit=1000)) == 1000
        assert len(await env.app.list(status=["running", "pending", "suspended"])) == 0


@workflow
async def has_many(count: int) -> None:
    await asyncio.gather(*(waits_for_nothing() for _ in range(count)))


@workflow
async def waits_for_nothing() -> None:
    await go.receive()


async def test_terminate_takes_the_children_along(env: Environment) -> None:
    async with env:
        run = await env.start(has_grandchildren.options(id="top"), "t")
        await env.settle()
        await run.terminate("fire")
        await env.settle()
        for id in ("top", "top/has_one", "top/has_one/waits_to_go"):
            info = await (await env.app.get(id)).describe()
            assert (info.status, info.error) == (Status.TERMINATED, "fire")


@workflow
async def goes_on_for_a_while(rounds: int) -> str:
    try:
        await go.receive()
    except asyncio.CancelledError as cancelled:
        await tidied(str(cancelled))
        raise
    if rounds:
        continue_as_new(rounds - 1)
    return "round"


@workflow
async def waits_for_rounds(*, impatient: bool) -> str:
    try:
        async with asyncio.timeout(60 if impatient else None):
            return await goes_on_for_a_while(2)
    except TimeoutError:
        return "enough"


@pytest.mark.parametrize("impatient", [True, False])
async def test_a_child_that_continues_as_new_is_still_the_child(env: Environment, *, impatient: bool) -> None:
    """Its parent hears of the last one's end, and calls off whichever one is there."""
    async with env:
        cleaned.clear()
        run = await env.start(waits_for_rounds.options(id="w"), impatient=impatient)
        for _ in range(2 if impatient else 3):
            await env.settle()
            await (await env.app.get("w/goes_on_for_a_while")).signal(go, 1)
        assert await env.result(run) == ("enough" if impatient else "round")
        await env.settle()
        assert cleaned == (["its parent 'w' does not wait for it any more"] if impatient else [])


async def test_a_child_has_queue_priority_and_correlation_from_its_parent(tmp_path: Path) -> None:
    async with Perdure(f"sqlite:///{tmp_path / 't.db'}", queues=("gpu",)) as app:
        run = await app.start(shares_a_child.options(queue="gpu", priority=3, correlation_id="c"), "kid")
        assert await run.result(timeout=60) == 8
        (kid,) = await run.children()
        assert (kid.id, kid.queue, kid.priority, kid.correlation_id) == ("kid", "gpu", 3, "c")


async def test_ten_levels_down(env: Environment) -> None:
    async with env:
        run = await env.start(goes_down.options(id="deep"), 10)
        assert await env.result(run, timedelta(minutes=1)) == 10


@workflow
async def goes_down(levels: int) -> int:
    return 0 if levels == 0 else 1 + await goes_down(levels - 1)


async def test_a_conflict_names_both_sides(env: Environment) -> None:
    async with env:
        await env.start(doubles.options(id="x"), 1)
        with pytest.raises(IdConflict, match=r'doubles\(\{"number":1\}\).*doubles\(\{"number":2\}\)'):
            await env.start(doubles.options(id="x"), 2)
