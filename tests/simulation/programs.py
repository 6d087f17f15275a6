"""Random workflow programs for the simulator: lists that workflows carry out, and what they may come to.

In:   a tape.
Out:  a program: a list of parts, each with the name of what it does.

A part's value is known beforehand, except where a race decides; `model.py` says what each
may come to. A further ability is a further case in `perform`, in `draw_part` and in the model.
"""

import asyncio
import sqlite3
from typing import Any, TypeAlias

from perdure import (
    AttemptLost,
    Deferred,
    Request,
    Retry,
    RunCancelled,
    RunFailed,
    RunTerminated,
    RunTimedOut,
    Signal,
    Stream,
    activity,
    at,
    attempt,
    continue_as_new,
    expose,
    info,
    interrupted,
    now,
    patched,
    resource,
    select,
    set_attributes,
    side_effect,
    sleep,
    undo,
    unwind,
    workflow,
)
from tests.simulation.memory import UserTable
from tests.simulation.simulator import Node, Tape
from tests.simulation.simulator.database import ENTRIES

Part: TypeAlias = list[Any]

MOST_ATTEMPTS = 3
# So many failures are none: every attempt goes on until its time is over.
HANGS = MOST_ATTEMPTS + 1
# What is said of an activity that waited for too long on its queue.
NOT_BEGUN = "queue_timeout"
# Some are a millisecond apart: where one timer rings, another may be due to the millisecond.
TIMES_MS = (500, 1, 2000, 6000, 20_000, 501, 2001)
# The queue of the activities that any process may take, if it works that queue.
NEAR, FAR = "default", "far"
sim_deferreds = {name: Deferred(f"sim-{name}", str) for name in ("north", "south")}
sim_request = Request("sim-ask", str, str)
# What the workflow itself publishes, and what its activities do: their number, how many came before, the attempt.
sim_said, sim_told = Stream("sim-said", int), Stream("sim-told", list[int])
sim_signals = {name: Signal(f"sim-{name}", str) for name in ("red", "blue")}


class WorkFailed(Exception):  # noqa: N818 - it names the trouble
    """What activities raise that are to fail."""


class Workshop:
    """Where activities of a simulated process are carried out; the schedule decides when they end.

    `has_sql` says that transactional activities get a connection of SQLite, and not a table in memory.
    """

    has_sql = True

    @staticmethod
    def of_the_running_node() -> "Workshop":
        """That of the process whose turn it is."""
        assert Node.running is not None
        (shop,) = Node.running.resources
        assert isinstance(shop, Workshop)
        return shop

    def begin(self, key: str, number: int, after: int) -> None:
        """An attempt begins, asked for after so many events."""
        raise NotImplementedError

    def work(self, number: int, fails: int) -> "asyncio.Future[int]":
        """Done when the schedule likes."""
        raise NotImplementedError

    def hang(self) -> "asyncio.Future[int]":
        """Never done."""
        raise NotImplementedError

    def die(self) -> "asyncio.Future[int]":
        """Take the whole process down."""
        raise NotImplementedError


def version() -> int:
    """Which code the process has whose turn it is."""
    return Node.running.version if Node.running is not None else 1


def answer_to(question: str) -> str:
    """What a run answers when it is asked this."""
    return f"answer to {question}"


def outcome_of(number: int) -> int:
    """What the step of this number returns."""
    return number * 3 + 1


async def _telling(number: int, work: "asyncio.Future[int]") -> int:
    """Publish something before the work, and after it."""
    sim_told.publish([number, 0, attempt().number])
    sim_told.publish([number, 1, attempt().number])
    done = await work
    sim_told.publish([number, 2, attempt().number])
    return done


RETRY = Retry(max_attempts=MOST_ATTEMPTS, initial_interval=1, backoff=2)


@activity(retry=RETRY)
async def sim_step(number: int, fails: int, after: int) -> int:
    shop, this = resource(Workshop), attempt()
    shop.begin(this.key, this.number, after)
    if number % 3:
        return await shop.work(number, fails if this.number <= fails else 0)
    return await _telling(number, shop.work(number, fails if this.number <= fails else 0))


@activity(queue=FAR, retry=RETRY)
async def sim_task(number: int, fails: int, after: int) -> int:
    shop, this = resource(Workshop), attempt()
    shop.begin(this.key, this.number, after)
    work = shop.hang() if fails == HANGS else shop.work(number, fails if this.number <= fails else 0)
    return await _telling(number, work)


@activity
async def sim_quick(number: int, after: int) -> int:
    this = attempt()
    resource(Workshop).begin(this.key, this.number, after)
    if number % 4 == 0:
        sim_told.publish([number, 0, this.number])
    return outcome_of(number)


@activity(at_most_once=True)
async def sim_once(number: int, after: int) -> int:
    shop, this = resource(Workshop), attempt()
    shop.begin(this.key, this.number, after)
    return await shop.work(number, 0)


@activity
async def sim_poison(after: int) -> int:
    shop, this = resource(Workshop), attempt()
    shop.begin(this.key, this.number, after)
    return await shop.die()


@activity(queue=FAR)
async def sim_far_poison(after: int) -> int:
    shop, this = resource(Workshop), attempt()
    shop.begin(this.key, this.number, after)
    return await shop.die()


@activity
async def sim_book(number: int, after: int) -> int:
    this = attempt()
    resource(Workshop).begin(this.key, this.number, after)
    return outcome_of(number)


@activity(retry=RETRY)
async def sim_unbook(number: int, fails: int, after: int) -> int:
    shop, this = resource(Workshop), attempt()
    shop.begin(this.key, this.number, after)
    return await shop.work(number, fails if this.number <= fails else 0)


def _enter(number: int) -> None:
    """Write a row of the user's into the transaction of the activity that runs."""
    key = attempt().key
    if resource(Workshop).has_sql:
        db = resource(sqlite3.Connection)
        db.execute(f"insert into {ENTRIES} (key, number) values (?, ?)", (key, number))
    else:
        resource(UserTable).insert(key, number)


@activity(transaction=True, retry=RETRY)
def sim_enter(number: int, fails: int, after: int) -> int:
    this = attempt()
    resource(Workshop).begin(this.key, this.number, after)
    _enter(number)
    if this.number <= fails:
        raise WorkFailed(f"step {number}")
    return outcome_of(number)


@activity(transaction=True, retry=RETRY)
async def sim_enter_slowly(number: int, fails: int, after: int) -> int:
    """Waits inside its transaction: only where others can write meanwhile."""
    shop, this = resource(Workshop), attempt()
    shop.begin(this.key, this.number, after)
    _enter(number)
    return await shop.work(number, fails if this.number <= fails else 0)


@workflow
async def sim_run(parts: list[Any], done: list[Any]) -> list[Any]:
    done = list(done)
    expose("done", lambda: len(done))
    for number, part in enumerate(parts):
        if part[0] == "continue":
            await unwind()
            continue_as_new(parts[number + 1 :], done)
        done.append(await perform(part))
    return done


async def perform(part: Part) -> Any:  # noqa: C901, PLR0911, PLR0912, PLR0915 - one case for each thing a program can do
    match part:
        case ["step", number, fails]:
            try:
                return await sim_step(number, fails, info().history_length)
            except WorkFailed:
                return ["failed", number]
        case ["task", number, fails, ms]:
            return await _task(number, fails, ms)
        case ["once", number, queue]:
            step = sim_once if queue is None else sim_once.options(queue=queue)
            try:
                return await step(number, info().history_length)
            except AttemptLost:
                return ["lost", number]
            except RunTerminated:
                # A client gave up the task, which was held.
                return ["no task"]
        case ["enter", number, fails, queue]:
            return await _entered(number, fails, queue)
        case ["hurried", number, ms]:
            return await _hurried(number, ms)
        case ["until stopped", inner]:
            name, value = await select(stop=interrupted(), way=perform(inner))
            return [name, value]
        case ["quick", number]:
            return await sim_quick(number, info().history_length)
        case ["book", number, fails]:
            await sim_book(number, info().history_length)
            undo(sim_unbook, number, fails, info().history_length)
            return ["booked", number]
        case ["sleep", ms]:
            began = now()
            await sleep(ms / 1000)
            return ["slept", round((now() - began).total_seconds() * 1000)]
        case ["receive", name, ms]:
            try:
                return ["got", await sim_signals[name].receive(timeout=None if ms is None else ms / 1000)]
            except TimeoutError:
                return ["got nothing"]
        case ["defer", name, ms]:
            try:
                return ["resolved", await sim_deferreds[name].wait(timeout=None if ms is None else ms / 1000)]
            except TimeoutError:
                return ["not resolved"]
        case ["asked", ms]:
            try:
                asked = await sim_request.receive(timeout=None if ms is None else ms / 1000)
            except TimeoutError:
                return ["not asked"]
            asked.answer(answer_to(asked.value))
            return ["asked", asked.value]
        case ["gather", parts]:
            return list(await asyncio.gather(*(perform(each) for each in parts)))
        case ["race", parts]:
            name, value = await select(**{f"way{n}": perform(each) for n, each in enumerate(parts)})
            return [name, value]
        case ["limit", ms, inner]:
            try:
                async with asyncio.timeout(ms / 1000):
                    return ["in time", await perform(inner)]
            except TimeoutError:
                return ["late"]
        case ["child", parts, on_close, ms]:
            return await _child(parts, on_close, ms)
        case ["cleaning up", number, inner]:
            try:
                return await perform(inner)
            finally:
                await sim_quick(number, info().history_length)
        case ["effect", number]:

            async def effect() -> int:
                return await Workshop.of_the_running_node().work(number, 0)

            return await side_effect(effect)
        case ["say", number]:
            at(f"part {number}")
            sim_said.publish(number)
            set_attributes(last=number)
            return ["said", patched(f"change {number}")]
        case ["other code", number]:
            # A process with other code does something else here, as a careless deployment would.
            if version() == 1:
                return await sim_quick(number, info().history_length)
            return await sim_step(number, 0, info().history_length)
        case ["poison"]:
            return await sim_poison(info().history_length)
        case ["far poison"]:
            try:
                return await sim_far_poison(info().history_length)
            except RunTerminated:
                return ["no task"]
        case ["raise"]:
            raise WorkFailed("as planned")
        case _:
            raise AssertionError(part)


async def _task(number: int, fails: int, ms: int | None) -> Any:
    task = sim_task if ms is None else sim_task.options(timeout=ms / 1000)
    try:
        return await task(number, fails, info().history_length)
    except WorkFailed:
        return ["failed", number]
    except TimeoutError:
        return ["too slow", number]
    except RunTerminated:
        return ["no task"]


async def _entered(number: int, fails: int, queue: str | None) -> Any:
    is_quick = Workshop.of_the_running_node().has_sql or number % 2
    step = sim_enter if is_quick else sim_enter_slowly
    try:
        return await (step if queue is None else step.options(queue=queue))(number, fails, info().history_length)
    except WorkFailed:
        return ["failed", number]
    except TimeoutError:
        return ["too slow", number]
    except RunTerminated:
        return ["no task"]


async def _hurried(number: int, ms: int) -> Any:
    try:
        return await sim_task.options(queue_timeout=ms / 1000)(number, 0, info().history_length)
    except TimeoutError as error:
        return ["not begun" if NOT_BEGUN in str(error) else "too slow", number]
    except RunTerminated:
        return ["no task"]


async def _child(parts: list[Part], on_close: str, ms: int | None) -> Any:
    timeout = None if ms is None else ms / 1000
    child = sim_run.options(on_parent_close=on_close, timeout=timeout)  # type: ignore[arg-type]  # drawn from the right ones
    try:
        return ["child", await child(parts, [])]
    except (RunCancelled, RunTerminated, RunTimedOut, RunFailed, WorkFailed) as error:
        return ["no child", type(error).__name__]


class Drawer:
    """Draws programs; numbers of steps are all different within one schedule."""

    def __init__(self, tape: Tape, *, has_rows: bool = True) -> None:
        self._tape = tape
        self._number = 0
        # Whether activities may write rows of their own; over a server nobody is lent a connection.
        self._has_rows = has_rows

    def number(self) -> int:
        self._number += 1
        return self._number

    def ms(self) -> int:
        return self._tape.one_of(*TIMES_MS)

    def program(self, depth: int = 0) -> list[Part]:
        """A program; a deeper one is shorter."""
        parts = [self.part(depth) for _ in range(self._tape.between(1, 4 if depth == 0 else 2))]
        if depth == 0 and self._tape.happens(120):
            parts.insert(self._tape.between(1, len(parts)), ["continue"])
        if depth == 0 and self._tape.happens(30):
            parts.append(self._tape.one_of(["poison"], ["poison"], ["far poison"]))
        elif self._tape.happens(300 if any(part[0] == "book" for part in parts) else 40):
            parts.append(["raise"])
        return parts

    def part(self, depth: int) -> Part:
        tape = self._tape
        leaf = tape.choose(12)
        if depth < 2 and leaf < 6:
            return self._branch(depth)
        return self._leaf()

    def _leaf(self) -> Part:  # noqa: C901, PLR0911, PLR0912 - one for each
        tape = self._tape
        match tape.choose(23):
            case 0 | 1 | 2:
                return ["step", self.number(), self._failures()]
            case 3 | 4 | 5:
                return ["quick", self.number()]
            case 6 | 7:
                return ["sleep", self.ms()]
            case 8 | 9:
                return ["receive", tape.one_of("red", "blue"), tape.one_of(None, self.ms())]
            case 10:
                ms = tape.one_of(None, None, None, self.ms())
                fails = HANGS if ms is not None and tape.choose(2) == 1 else self._failures()
                return ["task", self.number(), fails, ms]
            case 17:
                return ["defer", tape.one_of("north", "south"), tape.one_of(None, self.ms())]
            case 18:
                return ["asked", tape.one_of(None, self.ms())]
            case 11:
                return tape.one_of(["effect", self.number()], ["say", self.number()])
            case 12 | 13:
                return ["book", self.number(), self._failures()]
            case 14:
                return ["other code", self.number()]
            case 19 | 20 | 21 if self._has_rows:
                return ["enter", self.number(), self._failures(), tape.one_of(None, None, FAR)]
            case 22:
                return ["hurried", self.number(), self.ms()]
            case _:
                return ["once", self.number(), tape.one_of(None, None, FAR)]

    def _failures(self) -> int:
        return self._tape.one_of(0, 0, 0, 1, 2, MOST_ATTEMPTS)

    def _branch(self, depth: int) -> Part:
        tape = self._tape
        match tape.choose(7):
            case 0 | 1:
                return ["gather", [self.part(depth + 1) for _ in range(tape.between(2, 3))]]
            case 2:
                return ["race", [self.part(depth + 1) for _ in range(2)]]
            case 3:
                return ["limit", self.ms(), self.part(depth + 1)]
            case 4:
                policy = tape.one_of("cancel", "terminate", "abandon")
                return ["child", self.program(depth + 1), policy, self.ms() if tape.happens(100) else None]
            case 5:
                return ["until stopped", self.part(depth + 1)]
            case _:
                return ["cleaning up", self.number(), self.part(depth + 1)]
