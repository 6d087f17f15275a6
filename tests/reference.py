"""Reference workflows that between them use everything a workflow can do today.

Their activities answer by their arguments alone, so that every way through a crash
must lead to the same result and the same outcomes.
"""

import asyncio
import sqlite3
from collections import Counter
from datetime import timedelta
from typing import Any

from perdure import (
    AttemptLost,
    Deferred,
    Request,
    Retry,
    RunCancelled,
    Signal,
    Stream,
    Workflow,
    activity,
    at,
    attempt,
    continue_as_new,
    expose,
    heartbeat,
    info,
    interrupted,
    now,
    patched,
    resource,
    rng,
    set_attributes,
    side_effect,
    sleep,
    undo,
    unwind,
    uuid4,
    workflow,
)

answer = Signal("answer", int)
decision = Deferred("decision", int)
question = Request("question", int, int)
calls: Counter[str] = Counter()


@activity
async def square(number: int) -> int:
    calls[f"square {number}"] += 1
    return number * number


@activity
async def square_slowly(number: int) -> int:
    for _ in range(number % 3 + 1):
        await asyncio.sleep(0)
    return number * number


@activity
def square_in_a_thread(number: int) -> int:
    return number * number


@activity(retry=Retry(max_attempts=5, initial_interval=1))
async def succeeds_third_time(key: str) -> str:
    calls[key] += 1
    if calls[key] < 3:
        raise ConnectionError(f"attempt {calls[key]}")
    return key.split(maxsplit=1)[0]


@activity(retry=Retry(max_attempts=2, initial_interval=1))
async def never_succeeds(text: str) -> str:
    raise LookupError(text)


@activity(heartbeat=30, retry=Retry(max_attempts=9, initial_interval=1))
async def goes_on_from_there() -> int:
    found = attempt().details
    done = found if isinstance(found, int) else 0
    heartbeat(min(done + 1, 2))
    await asyncio.sleep(0)
    if done < 2:
        raise ConnectionError(f"after {done}")
    return done


@activity(at_most_once=True)
async def pays_once(key: str) -> str:
    calls[key] += 1
    await asyncio.sleep(0)
    return "paid"


@activity(transaction=True, retry=Retry(max_attempts=3, initial_interval=1))
def counts_rows(name: str) -> int:
    """Adds a row, and says how many there are: one that was there twice, or is gone, would be told of."""
    db = resource(sqlite3.Connection)
    db.execute("create table if not exists kept (name text)")
    db.execute("insert into kept values (?)", (name,))
    if name == "stumbles" and attempt().number == 1:
        raise OSError("down")
    (count,) = db.execute("select count(*) from kept where name = ?", (name,)).fetchone()
    return int(count)


@workflow
async def in_transactions(number: int) -> list[int]:
    seen = [await counts_rows("a"), await counts_rows("a")]
    seen += await asyncio.gather(counts_rows("b"), square_slowly(number), square(number), counts_rows("stumbles"))
    return [*seen, await counts_rows.options(queue="default")("c")]


@workflow
async def with_heartbeats(number: int) -> list[int]:
    return [await square(number), *await asyncio.gather(goes_on_from_there(), square_slowly(number))]


@workflow
async def at_most_once(key: str) -> list[str]:
    """Is none of those below: what was lost is lost."""
    seen: list[str] = []
    for step in (pays_once, pays_once.options(key="in a queue", queue="default")):
        try:
            seen.append(await step(f"{key} {len(seen)}"))
        except AttemptLost:
            seen.append("lost")
    return seen


@workflow
async def in_sequence(number: int) -> list[int]:
    first = await square(number)
    second = await square_slowly(first)
    third = await square_in_a_thread(number + 1)
    return [first, second, third, await square(third)]


@workflow
async def in_branches(number: int) -> list[int]:
    async def pair(n: int) -> int:
        return await square(n) + await square_slowly(n + 1)

    task = asyncio.create_task(square(100))
    pairs = await asyncio.gather(*(pair(n) for n in range(number)))
    return [*pairs, await task]


@workflow
async def in_time(number: int) -> list[str]:
    began = now()
    seen = []
    await sleep(timedelta(seconds=2))
    seen.append(str((now() - began).total_seconds() >= 2))
    try:
        async with asyncio.timeout(3):
            await asyncio.sleep(3600)
    except TimeoutError:
        seen.append("timed out")
    fast, slow = asyncio.create_task(asyncio.sleep(1, "fast")), asyncio.create_task(asyncio.sleep(50, "slow"))
    done, waiting = await asyncio.wait({fast, slow}, return_when=asyncio.FIRST_COMPLETED)
    seen += [task.result() for task in done]
    for task in waiting:
        task.cancel()
    seen.append(str(await square(number)))
    return seen


@workflow
async def by_signal(number: int) -> list[int]:
    taken = []
    try:
        await answer.receive(timeout=1)
    except TimeoutError:
        taken.append(-1)
    taken.append(await square(number))
    taken.append(await answer.receive())
    return [*taken, await square(taken[-1])]


@workflow
async def when_asked(number: int) -> list[object]:
    """Waits for a decision, twice; answers a question at once and another one later; ends when it is told to."""
    seen: list[object] = []
    try:
        await decision.wait(timeout=1)
    except TimeoutError:
        seen.append(await square(number))
    seen += [await decision.wait(), await decision.wait()]
    asked = await question.receive()
    asked.answer(asked.value + 1)
    later = await question.receive()
    later.answer(await square(later.value))
    return [*seen, asked.value, later.value, await interrupted()]


@workflow
async def by_luck(key: str) -> list[str]:
    lucky = await succeeds_third_time(key)
    try:
        await never_succeeds("gone")
    except LookupError as error:
        return [lucky, str(error), str(await square(3))]
    return []


@workflow
async def by_chance(number: int) -> int:
    recorded = await side_effect(lambda: number + 1)
    nothing: object = await side_effect(lambda: dict[str, int]().get("nothing"))
    uuid4()
    total = recorded if nothing is None else 0
    for n in range(5):
        # Chance leads the way, but every way leads to the same outcomes.
        if rng().random() < 0.5:
            total += 0
        total += await square(n)
    return total


@workflow
async def as_a_child(number: int) -> int:
    if number < 0:
        raise LookupError(f"nothing below {number}")
    return await square(number) + (await as_a_child(number - 1) if number else 0)


@workflow
async def never_ending_child() -> None:
    try:
        await sleep(timedelta(days=1))
    finally:
        await square(77)


@workflow
async def with_children(number: int) -> list[str]:
    seen = [str(n) for n in await asyncio.gather(*(as_a_child(n) for n in range(number)))]
    try:
        await as_a_child(-1)
    except LookupError as error:
        seen.append(str(error))
    try:
        async with asyncio.timeout(2):
            await never_ending_child.options(id="never")()
    except TimeoutError:
        seen.append("timed out")
    await sleep(1)
    try:
        await never_ending_child.options(id="never")()
    except RunCancelled as error:
        seen.append(f"{error.id} {error.reason}")
    return seen


@workflow
async def in_generations(number: int) -> list[object]:
    at(f"generation {number}")
    set_attributes(**{f"seen_{number}": await square(number), "last": number})
    if number < 3:
        continue_as_new(number + 1)
    way = "new" if patched("a change") else "old"
    return [info().attributes, way, await square(number), info().history_length]


@workflow
async def until_told(number: int) -> str:
    try:
        await sleep(1)
        await sleep(timedelta(days=365))
    except asyncio.CancelledError as told:
        await square(number)
        await sleep(1)
        raise asyncio.CancelledError(f"{told}") from None
    return "no"


@workflow
async def undone_after_an_error(number: int) -> str:
    undo(as_a_child, number)
    undo(square, 2).drop()
    undo(square, await square(number))
    await unwind()
    undo(square_in_a_thread, 5)
    undo(never_succeeds, "for good")
    undo(square_slowly, number)
    raise LookupError(f"no {await square(7)}")


@workflow
async def undone_out_of_time(number: int) -> str:
    undo(as_a_child, number)
    undo(square, await square(number))
    await sleep(timedelta(days=365))
    return "no"


@workflow
async def undone_when_told(number: int) -> str:
    undo(as_a_child, number)
    try:
        await sleep(1)
        undo(never_succeeds, "for good")
        await sleep(timedelta(days=365))
    finally:
        undo(square_slowly, number)
    return "no"


counted = Stream("counted", int)


@workflow
async def shown_and_published(number: int) -> list[int]:
    seen: list[int] = []
    expose("seen", lambda: [*seen])
    for step in range(number):
        counted.publish(step)
        counted.publish(-step)
        seen.append(await square(step))
    await sleep(1)
    counted.publish(number)
    return seen


@workflow
async def published_in_generations(number: int) -> int:
    expose("number", lambda: number)
    counted.publish(number)
    await square(number)
    counted.publish(number)
    if number < 3:
        continue_as_new(number + 1)
    return number


REFERENCES: dict[str, tuple[Workflow[..., Any], Any]] = {
    "in sequence": (in_sequence, 3),
    "in branches": (in_branches, 3),
    "with heartbeats": (with_heartbeats, 3),
    "in transactions": (in_transactions, 3),
    "in time": (in_time, 4),
    "by signal": (by_signal, 5),
    "when asked": (when_asked, 2),
    "by luck": (by_luck, "key"),
    "by chance": (by_chance, 6),
    "with children": (with_children, 3),
    "in generations": (in_generations, 1),
    "until told": (until_told, 8),
    "shown and published": (shown_and_published, 3),
    "published in generations": (published_in_generations, 1),
    "undone after an error": (undone_after_an_error, 1),
    "undone out of time": (undone_out_of_time.options(timeout=3), 1),
    "undone when told": (undone_when_told, 1),
}
