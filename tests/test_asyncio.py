"""Real asyncio inside workflows, live and replayed at every step; outside it stays what it was."""

import asyncio
import gc
import inspect
import sys
from asyncio import as_completed, gather, wait_for
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from contextvars import ContextVar, copy_context
from pathlib import Path
from types import GeneratorType
from typing import Any

import pytest

from perdure import NotAllowedInWorkflow, RunFailed, Signal, Workflow, activity, sleep, workflow
from perdure.engine.ports import OwnedRun
from perdure.kernel.events import RunCompleted
from perdure.testing import Environment
from perdure.worker.loop import asyncio_patch, generators
from perdure.worker.loop.loop import RunLoop
from perdure.worker.program import Program

knock = Signal("knock", int)
done: list[str] = []


@pytest.fixture(autouse=True)
def _nothing_done() -> None:
    done.clear()


@activity
async def jot(text: str) -> str:
    done.append(text)
    return text


async def after(seconds: float, text: str) -> str:
    await sleep(seconds)
    return await jot(text)


async def failing(seconds: float) -> None:
    await sleep(seconds)
    raise ValueError(f"after {seconds}")


async def result(env: Environment, workflow: Workflow[[], Any]) -> Any:
    async with env:
        return await env.result(await env.start(workflow))


def first_times(texts: list[str]) -> list[str]:
    """Without repetitions: where every step replays, what is under way is begun again."""
    return list(dict.fromkeys(texts))


# Many at once


@workflow
async def gathers_all() -> list[Any]:
    first = asyncio.create_task(after(3, "a"))
    await first
    together = gather(first, first, after(2, "b"), after(1, "c"))
    empty: list[Any] = await gather()
    kept = await gather(failing(1), after(1, "d"), return_exceptions=True)
    return [empty, await together, [str(each) for each in kept]]


async def test_gather_keeps_the_order_of_its_members(env: Environment) -> None:
    assert await result(env, gathers_all) == [[], ["a", "a", "b", "c"], ["after 1", "d"]]


@workflow
async def gathers_what_is_done() -> list[str]:
    notes: list[str] = []
    tasks = [asyncio.create_task(after(1, "a")), asyncio.create_task(after(1, "b"))]
    await asyncio.wait(tasks)
    asyncio.get_running_loop().call_soon(notes.append, "a turn")
    results = await gather(*tasks)
    return [*notes, *results]


async def test_gathering_what_is_done_takes_no_turn(env: Environment) -> None:
    """Python 3.11 lets one pass, later ones do not; a history must not depend on which one wrote it."""
    assert await result(env, gathers_what_is_done) == ["a", "b"]


@workflow
async def cancels_a_gathering() -> list[Any]:
    together = gather(after(5, "never"), after(9, "neither"))
    await sleep(1)
    together.cancel("enough")
    try:
        await together
    except asyncio.CancelledError as error:
        return [*error.args, await jot("went on")]
    return []


async def test_a_gathering_is_cancelled_with_its_members(env: Environment) -> None:
    assert await result(env, cancels_a_gathering) == ["enough", "went on"]
    assert done == ["went on"]


@workflow
async def groups_with_errors() -> list[str]:
    async def tidy() -> None:
        try:
            await sleep(100)
        finally:
            await jot("tidied")

    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(tidy())
            group.create_task(failing(2))
            group.create_task(failing(1))
    except ExceptionGroup as errors:
        return [str(error) for error in errors.exceptions]
    return []


async def test_a_group_cancels_its_tasks_and_gathers_their_errors(env: Environment) -> None:
    assert await result(env, groups_with_errors) == ["after 1"]
    assert done == ["tidied"]


@workflow
async def waits_in_all_ways() -> list[Any]:
    tasks = [asyncio.create_task(after(seconds, f"{seconds}")) for seconds in (3, 1, 2)]
    first, rest = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    found = [[tasks.index(task) for task in first], len(rest)]
    timed, rest = await asyncio.wait(rest, timeout=0.5)
    found += [len(timed), len(rest)]
    broken = asyncio.create_task(failing(1))
    with_error, _ = await asyncio.wait([*rest, broken], return_when=asyncio.FIRST_EXCEPTION)
    found.append(broken in with_error)
    everything, nothing = await asyncio.wait([*tasks, broken])
    return [*found, len(everything), len(nothing)]


async def test_wait_in_all_its_modes(env: Environment) -> None:
    assert await result(env, waits_in_all_ways) == [[1], 2, 0, 2, True, 4, 0]


@workflow
async def goes_through_sets() -> list[list[int]]:
    loop = asyncio.get_running_loop()
    futures = [loop.create_future() for _ in range(10)]
    tasks = [asyncio.create_task(asyncio.sleep(0)) for _ in range(10)]
    members: list[Any] = [*futures, *tasks, *map(asyncio.shield, tasks), *(gather(task) for task in tasks)]
    loop.call_soon(futures[0].set_result, None)
    early, late = await asyncio.wait(members, return_when=asyncio.FIRST_COMPLETED)
    for future in futures[1:]:
        future.cancel()
    everything, _ = await asyncio.wait(set(members))
    return [[members.index(each) for each in found] for found in (early, late, everything, set(tasks) | early)]


def test_sets_of_futures_have_one_order_for_ever() -> None:
    """By their addresses they would have another order in every process."""
    seen = []
    elsewhere: list[object] = []
    for _ in range(5):
        program = Program(goes_through_sets, OwnedRun("run", "sets", "goes_through_sets", "{}", 77, 0))
        program.begin(((), {}))
        end = program.end()
        assert isinstance(end, RunCompleted)
        seen.append(end.result)
        program.evict()
        elsewhere += [asyncio.Future(loop=program.loop) for _ in range(37)]
    assert seen[1:] == [seen[0]] * 4


@workflow
async def takes_as_they_come() -> list[Any]:
    came: list[Any] = [await each for each in as_completed([after(3, "c"), after(1, "a"), after(2, "b")])]
    tasks = [asyncio.create_task(after(2, "e")), asyncio.create_task(after(1, "d"))]
    together: Any = as_completed(tasks)
    came += [tasks.index(task) async for task in together]
    try:
        for each in as_completed([after(1, "f"), after(9, "late")], timeout=5):
            came.append(await each)
    except TimeoutError:
        came.append("timed out")
    return came


async def test_as_completed_gives_results_as_they_come(env: Environment) -> None:
    """With `async for` too, which Python itself has since 3.13."""
    assert await result(env, takes_as_they_come) == ["a", "b", "c", 1, 0, "f", "timed out"]


@workflow
async def makes_tasks_in_order() -> list[str]:
    return [await each for each in as_completed([jot(str(number)) for number in range(30)])]


async def test_as_completed_begins_its_tasks_in_order(env: Environment) -> None:
    assert await result(env, makes_tasks_in_order) == [str(number) for number in range(30)]
    assert first_times(done) == [str(number) for number in range(30)]


async def test_as_completed_refuses_a_lone_awaitable(env: Environment) -> None:
    @workflow
    async def mistaken() -> None:
        lone: Any = after(1, "x")
        try:
            as_completed(lone)
        finally:
            lone.close()

    with pytest.raises(RunFailed, match="iterable of awaitables, not coroutine"):
        await result(env, mistaken)


# Limits and shields


@workflow
async def sets_limits() -> list[Any]:
    async def at_once() -> str:
        notes.append("begun")
        return "quick"

    notes: list[Any] = []
    pending = wait_for(at_once(), 5)
    notes.append(await pending)
    for limit in (3, 0, -1):
        try:
            await wait_for(after(9, "never"), limit)
        except TimeoutError:
            notes.append(limit)
    ready = asyncio.create_task(after(1, "ready"))
    notes.append(await wait_for(ready, None))
    notes.append(await wait_for(ready, 0))
    async with asyncio.timeout(10) as limit_of_ten:
        limit_of_ten.reschedule(asyncio.get_running_loop().time() + 20)
        notes.append(await after(15, "in time"))
    return notes


async def test_wait_for_and_timeout(env: Environment) -> None:
    assert await result(env, sets_limits) == ["begun", "quick", 3, 0, -1, "ready", "ready", "in time"]
    assert done == ["ready", "in time"]


@workflow
async def shields() -> list[Any]:
    task = asyncio.create_task(after(5, "shielded"))
    try:
        async with asyncio.timeout(1):
            await asyncio.shield(task)
    except TimeoutError:
        return [task.done(), await task]
    return []


async def test_a_shield_keeps_a_cancellation_off(env: Environment) -> None:
    assert await result(env, shields) == [False, "shielded"]


@workflow
async def cancels_a_branch() -> list[Any]:
    async def branch() -> None:
        try:
            await sleep(100)
        except asyncio.CancelledError:
            await jot("cleaning up")
            raise

    task = asyncio.create_task(branch())
    await sleep(1)
    asked = task.cancel()
    outcome = await gather(task, return_exceptions=True)
    return [asked, type(outcome[0]).__name__, task.cancelled()]


async def test_a_cancelled_branch_may_await_its_clean_up(env: Environment) -> None:
    assert await result(env, cancels_a_branch) == [True, "CancelledError", True]
    assert done == ["cleaning up"]


@workflow
async def is_cancelled_while_it_fails() -> list[Any]:
    async def stubborn() -> None:
        try:
            await sleep(100)
        except asyncio.CancelledError:
            raise ValueError("on the way out") from None

    async def branch() -> None:
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(stubborn())
        except ExceptionGroup:
            await jot("must not go on")

    task = asyncio.create_task(branch())
    await sleep(1)
    task.cancel()
    (error,) = await gather(task, return_exceptions=True)
    return [type(error).__name__, task.cancelling()]


async def test_a_cancellation_that_meets_an_error_is_not_lost(env: Environment) -> None:
    """Up to Python 3.12 the error swallows it."""
    assert await result(env, is_cancelled_while_it_fails) == ["CancelledError", 1]
    assert done == []


@workflow
async def is_late_while_it_fails() -> list[Any]:
    async def stubborn() -> None:
        try:
            await sleep(100)
        except asyncio.CancelledError:
            raise ValueError("on the way out") from None

    try:
        async with asyncio.timeout(1), asyncio.TaskGroup() as group:
            group.create_task(stubborn())
    except ExceptionGroup as errors:
        task = asyncio.current_task()
        assert task is not None
        return [len(errors.exceptions), task.cancelling(), await jot("goes on")]
    return []


async def test_a_timeout_takes_its_cancellation_back(env: Environment) -> None:
    assert await result(env, is_late_while_it_fails) == [1, 0, "goes on"]


@workflow
async def limits_its_clean_up() -> list[Any]:
    async def branch() -> list[str]:
        try:
            await sleep(100)
        except asyncio.CancelledError:
            try:
                async with asyncio.timeout(1):
                    await sleep(100)
            except BaseException as error:  # noqa: BLE001 - whichever it is
                return [type(error).__name__, type(error.__cause__).__name__]
        return []

    task = asyncio.create_task(branch())
    await sleep(1)
    task.cancel()
    return [await task, task.cancelling()]


async def test_a_cancelled_task_may_limit_its_clean_up(env: Environment) -> None:
    """Up to Python 3.11.2 the timeout takes the earlier cancellation for its own end, and never tells of itself."""
    assert await result(env, limits_its_clean_up) == [["TimeoutError", "CancelledError"], 1]


@workflow
async def fails_when_its_time_is_up() -> list[str]:
    try:
        async with asyncio.timeout(1):
            try:
                await sleep(100)
            finally:
                raise KeyError("on the way out")
    except KeyError as error:
        return [type(error.__context__).__name__, type(error.__context__.__cause__).__name__]  # type: ignore[union-attr]  # it has one


async def test_an_error_on_the_way_out_tells_of_the_timeout(env: Environment) -> None:
    """Up to Python 3.12 it tells of a cancellation only, of which nobody knows the reason."""
    assert await result(env, fails_when_its_time_is_up) == ["TimeoutError", "CancelledError"]


@workflow
async def cannot_carry_the_end() -> str:
    future = asyncio.get_running_loop().create_future()
    future.set_exception(StopIteration("the end"))
    try:
        await future
    except RuntimeError as error:
        return repr(error.__cause__)
    return ""


async def test_a_future_that_cannot_carry_an_error_carries_another(env: Environment) -> None:
    """Early versions of Python 3.11 and 3.12 raise a TypeError where the error is set."""
    assert await result(env, cannot_carry_the_end) == "StopIteration('the end')"


# Queues, locks and the like


@workflow
async def shares_a_queue() -> list[str]:
    queue: asyncio.Queue[int] = asyncio.Queue(2)
    worked: list[str] = []

    async def worker(name: str) -> None:
        while True:
            worked.append(await after(1, f"{name}{await queue.get()}"))
            queue.task_done()

    workers = [asyncio.create_task(worker(name)) for name in "ab"]
    for item in range(5):
        await queue.put(item)
    await queue.join()
    for each in workers:
        each.cancel()
    return worked


async def test_workers_share_a_queue(env: Environment) -> None:
    worked = await result(env, shares_a_queue)
    assert worked == first_times(done)
    assert sorted(text[1] for text in worked) == list("01234")


@workflow
async def takes_turns() -> list[str]:
    lock, two, opened = asyncio.Lock(), asyncio.Semaphore(2), asyncio.Event()
    notes: list[str] = []

    async def alone(name: str) -> None:
        await opened.wait()
        async with lock:
            notes.append(await after(1, f"lock {name}"))
        async with two:
            notes.append(await after(1, f"two {name}"))

    async with asyncio.TaskGroup() as group:
        for name in "abc":
            group.create_task(alone(name))
        await sleep(1)
        opened.set()
    return notes


async def test_locks_events_and_semaphores_serve_in_order(env: Environment) -> None:
    notes = await result(env, takes_turns)
    assert [note for note in notes if note.startswith("lock")] == ["lock a", "lock b", "lock c"]
    assert [note for note in notes if note.startswith("two")] == ["two a", "two b", "two c"]


@workflow
async def hands_out_permits() -> list[str]:
    semaphore = asyncio.Semaphore(0)
    notes: list[str] = []

    async def take(name: str) -> None:
        await semaphore.acquire()
        notes.append(name)
        asyncio.get_running_loop().call_soon(notes.append, f"a turn after {name}")

    first = asyncio.create_task(take("a"))
    await sleep(1)
    others = [asyncio.create_task(take("b")), asyncio.create_task(take("c"))]
    for _ in range(3):
        semaphore.release()
    await gather(first, *others)
    return notes


async def test_permits_wake_all_they_suffice_for(env: Environment) -> None:
    """Early versions of Python 3.11 and 3.12 wake one, which wakes the next a turn later."""
    notes = await result(env, hands_out_permits)
    assert notes[:4] == ["a", "b", "c", "a turn after a"]


@workflow
async def waits_for_conditions() -> list[str]:
    condition, meeting = asyncio.Condition(), asyncio.Barrier(2)
    notes: list[str] = []

    async def waiter(name: str) -> None:
        async with condition:
            await condition.wait()
            notes.append(name)

    impatient, patient = asyncio.create_task(waiter("impatient")), asyncio.create_task(waiter("patient"))
    await sleep(1)
    async with condition:
        condition.notify()
    impatient.cancel()
    await patient
    places = await gather(meeting.wait(), meeting.wait())
    return [*notes, f"{sorted(places)}"]


async def test_a_notice_is_not_lost_with_whom_it_woke(env: Environment) -> None:
    """Who is woken and cancelled at once wakes another; early versions of Python 3.11 and 3.12 forget to."""
    assert await result(env, waits_for_conditions) == ["patient", "[0, 1]"]


shared_by_runs = asyncio.Semaphore(0)


@workflow
async def shares_beyond_its_run() -> None:
    await shared_by_runs.acquire()


async def test_a_semaphore_belongs_to_one_run(tmp_path: Path) -> None:
    """Shared by runs it would make one's history depend on another's; asyncio says so by itself."""
    async with Environment(str(tmp_path / "shared.db")) as env:
        await env.start(shares_beyond_its_run)
        other = await env.start(shares_beyond_its_run)
        with pytest.raises(RunFailed, match="different event loop"):
            await env.result(other)


# Background tasks and generators


@workflow
async def works_in_the_background() -> list[str]:
    notes: list[str] = []
    task = asyncio.create_task(after(2, "background"))
    task.add_done_callback(lambda _: notes.append("told"))
    open_tasks = len(asyncio.all_tasks())
    notes.append(await after(1, "meanwhile"))
    notes.append(await task)
    return [f"{open_tasks}", *notes]


async def test_background_tasks_go_on_beside(env: Environment) -> None:
    assert await result(env, works_in_the_background) == ["2", "meanwhile", "told", "background"]


colour: ContextVar[str] = ContextVar("colour", default="none")


@workflow
async def paints() -> list[str]:
    async def paint(new: str) -> str:
        before = colour.get()
        colour.set(new)
        return f"{before} {await jot(new)}"

    shared = copy_context()
    apart = [asyncio.create_task(paint("red")), asyncio.create_task(paint("green"))]
    together = [asyncio.create_task(paint(new), context=shared) for new in ("blue", "white")]
    return [*await gather(*apart, *together), shared[colour], colour.get()]


async def test_a_context_is_a_tasks_own_unless_it_is_given_one(env: Environment) -> None:
    assert await result(env, paints) == ["none red", "none green", "none blue", "blue white", "white", "none"]


async def numbered(count: int) -> AsyncIterator[int]:
    try:
        for number in range(count):
            await jot(f"number {number}")
            yield number
    finally:
        await jot("closed")


@workflow
async def generates() -> list[Any]:
    everything = [number async for number in numbered(2)]
    async with aclosing(numbered(9)) as numbers:  # type: ignore[type-var]  # a generator
        first = await anext(aiter(numbers))
    return [everything, first]


async def test_async_generators(env: Environment) -> None:
    assert await result(env, generates) == [[0, 1], 0]
    assert done == ["number 0", "number 1", "closed", "number 0", "closed"]


@workflow
async def leaves_generators() -> str:
    async def first() -> None:
        kept = numbered(9)
        async for _ in kept:
            break

    async for _ in numbered(9):
        break
    await sleep(1)
    await first()
    return await after(1, "next")


async def test_a_generator_that_a_variable_holds_is_not_closed_by_itself(
    env: Environment, caplog: pytest.LogCaptureFixture
) -> None:
    """Whether a traceback holds it too, and until when, is up to the collector; no replay could follow."""
    generators._told_of.clear()
    assert await result(env, leaves_generators) == "next"
    assert done == ["number 0", "closed", "number 0", "next"]
    assert [record.getMessage().split(";")[0] for record in caplog.records] == [
        "the async generator numbered was left open"
    ]


@workflow
async def fails_over_a_generator() -> list[str]:
    async def reader() -> None:
        numbers: Any = numbered(9)
        await anext(numbers)
        raise ValueError("cannot read on")

    kept = await gather(reader(), return_exceptions=True)
    return [str(kept[0]), await after(1, "next")]


async def test_a_task_that_fails_closes_its_generators(env: Environment) -> None:
    """The traceback of its error holds them, and for how long depends on the version of Python."""
    assert await result(env, fails_over_a_generator) == ["cannot read on", "next"]
    assert done == ["number 0", "closed", "next"]


@workflow
async def gives_up_a_number() -> list[Any]:
    numbers: Any = numbered(9)
    first = asyncio.ensure_future(anext(numbers))
    unbegun = asyncio.ensure_future(anext(numbers))
    unbegun.cancel()
    outcomes = await gather(first, unbegun, return_exceptions=True)
    await numbers.aclose()
    return [outcomes[0], type(outcomes[1]).__name__]


@pytest.mark.filterwarnings("ignore:coroutine method 'asend' .* was never awaited:RuntimeWarning")
async def test_the_next_value_of_a_generator_can_be_a_task(env: Environment) -> None:
    """Cancelled before it begins it leaves the generator alone; before Python 3.13 asyncio lets it do harm."""
    assert await result(env, gives_up_a_number) == [0, "CancelledError"]
    assert first_times(done) == ["number 0", "closed"]
    # 3.13 warns of what was cancelled before it began; here, and not in a later test.
    gc.collect()


@workflow
async def loses_a_generator() -> str:
    numbers: Any = numbered(9)
    await anext(numbers)
    knot: list[Any] = [numbers]
    knot.append(knot)
    del numbers, knot
    await knock.receive()
    return await jot("last")


async def test_a_generator_that_the_collector_finds_does_nothing(env: Environment) -> None:
    """When the collector comes is chance; what it closes would call activities at a moment no replay knows."""
    async with env:
        run = await env.start(loses_a_generator)
        await env.settle()
        gc.collect()
        await env.settle()
        assert done == ["number 0"]
        await run.signal(knock, 1)
        assert await env.result(run) == "last"
    gc.collect()
    assert done == ["number 0", "last"]


async def test_what_would_change_the_loop_is_refused(env: Environment) -> None:
    @workflow
    async def meddles() -> None:
        asyncio.get_running_loop().set_task_factory(None)

    with pytest.raises(RunFailed, match="set task factory of the event loop is not possible") as caught:
        await result(env, meddles)
    assert isinstance(caught.value.__cause__, NotAllowedInWorkflow)


# Outside workflows


REPLACED: list[tuple[Callable[..., Any], str]] = [
    (asyncio.gather, "(*coros_or_futures, return_exceptions=False)"),
    (asyncio.wait_for, "(fut, timeout)"),
    (asyncio.as_completed, "(fs, *, timeout=None)"),
    (asyncio.all_tasks, "(loop=None)"),
    (asyncio.TaskGroup.__aexit__, "(self, et, exc, tb)"),
    (asyncio.Condition.wait, "(self)"),
    (asyncio.Semaphore.acquire, "(self)"),
]


@pytest.mark.parametrize(("function", "signature"), REPLACED, ids=[function.__qualname__ for function, _ in REPLACED])
def test_what_is_replaced_looks_as_before(function: Callable[..., Any], signature: str) -> None:
    asyncio_patch.install(RunLoop)
    assert str(inspect.signature(function)) == signature
    assert function.__module__.startswith("asyncio.")
    assert function.__code__.co_qualname == function.__qualname__
    assert (function.__qualname__ in asyncio_patch._choices) is True
    is_async = function.__qualname__ not in {"gather", "as_completed", "all_tasks"}
    assert inspect.iscoroutinefunction(function) is is_async


async def test_outside_workflows_asyncio_is_the_librarys() -> None:
    asyncio_patch.install(RunLoop)

    async def quick(text: str) -> str:
        return text

    together = gather(quick("a"), quick("b"))
    assert type(together).__name__ == "_GatheringFuture"
    assert list(await together) == ["a", "b"]
    came = as_completed([quick("c")])
    assert isinstance(came, GeneratorType) is (sys.version_info < (3, 13))
    assert [await each for each in came] == ["c"]
    assert type(asyncio.get_running_loop().create_future()) is asyncio.Future
    assert asyncio.current_task() in asyncio.all_tasks()
    with pytest.raises(TimeoutError):
        await wait_for(asyncio.Event().wait(), 0.001)
