"""Bugs of others, about replay: what happens in one order must not happen in another one later.

The numbers in the docstrings are those of docs/bugs-of-others.md.
"""

import asyncio
import gc
import itertools
import threading
from pathlib import Path

import pytest

from perdure import Signal, activity, sleep, workflow
from perdure.kernel.commands import CloseRun, Command, FireTimer, ReceiveMessage, RecordOutcome, TakeNote
from perdure.kernel.events import ActivityCompleted, CancelRequested, Event, Raw, RunCompleted, RunTerminated
from perdure.kernel.messages import Message, SignalSent
from perdure.kernel.run import AlreadyClosed, RunState, TooEarly, decide, evolve
from perdure.kernel.status import OPEN, Status
from perdure.stores.operations import Batch
from perdure.testing import Environment

hint = Signal("hint", str)
halt = Signal("halt", int)
gates: dict[str, asyncio.Event] = {}


@pytest.fixture(autouse=True)
def _fresh() -> None:
    gates.clear()


@activity
async def ends_when_told(name: str) -> str:
    await gates.setdefault(name, asyncio.Event()).wait()
    return name


@activity
async def ends_at_once(name: str) -> str:
    return name


@activity
def ends_in_a_thread(name: str) -> str:
    return f"{name} {threading.active_count()}"


@workflow
async def perhaps_sleeps() -> list[str]:
    """The wait has a timer inside, which is needed only when nothing is there yet."""
    got = []
    for number in range(3):
        try:
            got.append(await hint.receive(timeout=10))
        except TimeoutError:
            got.append("nothing")
        got.append(await ends_at_once(f"step {number}"))
    return got


@workflow
async def notes_the_order(names: list[str]) -> list[str]:
    order: list[str] = []

    async def one(name: str) -> None:
        order.append(await ends_when_told(name))

    async def listen() -> None:
        while True:
            order.append(await hint.receive())

    listener = asyncio.create_task(listen())
    await asyncio.gather(*(one(name) for name in names))
    listener.cancel()
    return [*order, str(await halt.receive())]


@workflow
async def holds_on_by_a_thread() -> str:
    """Nothing but the engine holds the task in the middle."""
    waiting = asyncio.get_running_loop().create_future()

    async def middle() -> None:
        waiting.set_result(await hint.receive())

    asyncio.create_task(middle())  # noqa: RUF006 - on purpose
    await sleep(1)
    return str(await waiting)


@workflow
async def waits_for_a_hint() -> str:
    return await hint.receive()


@workflow
async def counts_threads() -> str:
    return await ends_in_a_thread("threads:")


@pytest.mark.parametrize("early", [0, 1, 2, 3])
async def test_a_wait_that_needed_no_timer_replays_without_one(env: Environment, early: int) -> None:
    """R23: the optional sleep inside a receive took a number live and none on replay, and all steps after it moved."""
    async with env:
        run = await env.start(perhaps_sleeps.options(id="perhaps"))
        for number in range(early):
            await run.signal(hint, f"hint {number}")
        await env.settle()
        await env.pass_time(11)
        await env.crash()
        again = await env.app.get("perhaps", workflow=perhaps_sleeps)
        got = await env.result(again)
        hints = [f"hint {number}" for number in range(early)] + ["nothing"] * (3 - early)
        assert got == [word for number in range(3) for word in (hints[number], f"step {number}")]


@pytest.mark.parametrize("order", list(itertools.permutations("abc")))
async def test_results_reach_the_code_in_the_order_they_were_recorded(env: Environment, order: tuple[str, ...]) -> None:
    """R26: live in the order of completion, on replay in that of the calls."""
    async with env:
        await env.start(notes_the_order.options(id="order"), ["a", "b", "c"])
        await env.settle()
        for name in order:
            gates[name].set()
            await env.settle()
        await env.crash()
        again = await env.app.get("order", workflow=notes_the_order)
        await again.signal(halt, 0)
        assert await env.result(again) == [*order, "0"]


def collect_garbage(_: Batch) -> None:
    """At every step."""
    gc.collect()


@pytest.mark.parametrize("place", range(4))
async def test_a_signal_is_seen_on_replay_where_it_was_seen_live(env: Environment, place: int) -> None:
    """R25: on replay all signals came first, before the results they had come after."""
    async with env:
        run = await env.start(notes_the_order.options(id="mixed"), ["a", "b", "c"])
        await env.settle()
        expected = ["a", "b", "c"]
        expected.insert(place, "psst")
        for word in expected:
            if word == "psst":
                await run.signal(hint, word)
            else:
                gates[word].set()
            await env.settle()
        await env.crash()
        again = await env.app.get("mixed", workflow=notes_the_order)
        await again.signal(halt, 1)
        # One that comes after the last result finds the listener gone.
        assert await env.result(again) == [*expected[: 3 if place == 3 else 4], "1"]


async def test_the_collector_takes_nothing_of_a_run_that_waits(tmp_path: Path) -> None:
    """R17: nobody held the task of a run, and the garbage collector took it away in the middle."""
    async with Environment(str(tmp_path / "gc.db")) as env:
        run = await env.start(holds_on_by_a_thread)
        env.store.after_commit = collect_garbage
        await env.settle()
        gc.collect()
        await run.signal(hint, "still here")
        gc.collect()
        assert await env.result(run) == "still here"


async def test_runs_that_wait_hold_no_threads(tmp_path: Path) -> None:
    """R22: a pool of threads was used up by runs that only waited, and those they waited for got none."""
    async with Environment(str(tmp_path / "threads.db")) as env:
        before = threading.active_count()
        waiting = [await env.start(waits_for_a_hint) for _ in range(1000)]
        await env.settle()
        assert threading.active_count() == before
        count = await env.run(counts_threads)
        assert int(count.removeprefix("threads: ")) <= before + 1
        for run in waiting[::100]:
            await run.signal(hint, "go")
            assert await env.result(run) == "go"


COMMANDS: list[Command] = [
    RecordOutcome("a#1", ActivityCompleted("a", Raw(b"[]"), Raw(b"1"), 0)),
    FireTimer("t#1", 5),
    ReceiveMessage("s#1", 1, "m", SignalSent("s", Raw(b"1"))),
    TakeNote(CancelRequested("why"), Message(2, "c", SignalSent("s", Raw(b"1")), 0)),
    CloseRun(RunCompleted(Raw(b"1"))),
    CloseRun(RunTerminated("why")),
]


@pytest.mark.parametrize("status", Status)
@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: type(command).__name__)
@pytest.mark.parametrize("now", [0, 4, 5, 6])
def test_every_state_has_an_answer_to_every_command(status: Status, command: Command, now: int) -> None:
    """R60: retrying a job that was being aborted was a case nobody had thought of, and ended the worker."""
    state = RunState(status, 7, 3)
    answer = decide(state, command, now)
    if status not in OPEN:
        assert answer == AlreadyClosed(status)
    elif isinstance(command, FireTimer) and max(now, 3) < 5:
        assert isinstance(answer, TooEarly)
    else:
        assert isinstance(answer, Event)
        after = evolve(state, answer)
        assert (after.seq, after.at) == (8, max(now, 3))
        assert (after.status not in OPEN) == isinstance(command, CloseRun)
