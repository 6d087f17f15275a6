"""A database that has lived: runs of every kind, at the moment their worker died.

In:   a path, or the URL of a Postgres database.
Out:  a file, or a schema, with children, generations, cancels, retries, parked, held, delayed and owned runs,
      signals sent twice or to nobody, and values too large for their rows.
"""

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from perdure import Retry, Signal, Stream, Workflow, activity, continue_as_new, expose, set_attributes, sleep, workflow
from perdure.authoring.options import WorkflowOptions
from perdure.testing import Environment

LARGE = "x" * 3000
word = Signal("word", str)
other = Signal("other", str)
said = Stream("said", str)
tries: dict[str, int] = {}


@activity
async def lives(what: str) -> str:
    return f"{what} lives"


@activity(retry=Retry(max_attempts=4, initial_interval=1))
async def lives_the_third_time(key: str) -> str:
    tries[key] = tries.get(key, 0) + 1
    if tries[key] < 3:
        raise ConnectionError(key)
    return key


@activity(retry=Retry(max_attempts=9, initial_interval=3600, max_interval=3600))
async def never_lives() -> str:
    raise ConnectionError("never")


@activity
async def lives_for_ever() -> None:
    await asyncio.Event().wait()


@workflow
async def lives_in_steps(what: str) -> str:
    set_attributes(what=what[:10])
    expose("what", lambda: what[:10])
    for _ in range(3):
        said.publish(what[:10])
        what = await lives(what)
    return what


@workflow
async def lives_on_retries(key: str) -> str:
    return await lives_the_third_time(key) + await lives_the_third_time(f"{key} again")


@workflow
async def lives_in_vain() -> str:
    return await never_lives()


@workflow
async def lives_asleep(seconds: float) -> str:
    await sleep(1)
    await sleep(seconds)
    return "awake"


@workflow
async def lives_on_words(count: int) -> list[str]:
    return [await word.receive() for _ in range(count)]


@workflow
async def lives_in_generations(left: int) -> str:
    said = await word.receive()
    if left:
        continue_as_new(left - 1)
    return said


@workflow
async def fails_to_live() -> None:
    raise KeyError("no")


@workflow
async def lives_in_activity() -> None:
    await lives_for_ever()


@workflow
async def cleans_up_for_long() -> None:
    try:
        await other.receive()
    except asyncio.CancelledError:
        await word.receive()
        raise


@workflow
async def lives_with_children() -> str:
    await lives_in_steps.options(id="child that ends")("child")
    late = asyncio.create_task(lives_in_steps.options(id="child that is called off", delay=3600)("late"))
    await sleep(1)
    late.cancel()
    try:
        await fails_to_live.options(id="child that fails")()
    except KeyError:
        await lives_in_generations.options(id="child in generations")(2)
    return await lives_asleep.options(id="child asleep")(7200)


@workflow
async def lives_before_children() -> str:
    left = [
        asyncio.create_task(cleans_up_for_long.options(id="left to cancel")()),
        asyncio.create_task(lives_on_words.options(id="left alone", on_parent_close="abandon")(1)),
        asyncio.create_task(lives_on_words.options(id="left to end", on_parent_close="terminate")(1)),
    ]
    await sleep(1)
    return f"left {len(left)}"


async def as_it_was() -> str:
    await lives("once")
    return await word.receive()


async def as_it_is() -> str:
    await sleep(1)
    return await word.receive()


def changing_life(fn: Any) -> Workflow[..., Any]:
    return Workflow(fn, "changing_life", WorkflowOptions())


KINDS: list[Workflow[..., Any]] = [
    lives_in_steps,
    lives_on_retries,
    lives_in_vain,
    lives_asleep,
    lives_on_words,
    lives_in_generations,
    fails_to_live,
    lives_in_activity,
    cleans_up_for_long,
    lives_with_children,
    lives_before_children,
]


async def live(path: Path | str) -> None:
    """Make the file, or the tables behind a URL."""
    async with Environment(str(path), workflows=[*KINDS, changing_life(as_it_was)]) as env:
        await env.start(changing_life(as_it_was).options(id="held"))
        await env.settle()
        await _begin(env)
        await env.pass_time(2)
        await _talk(env)
        await env.pass_time(60)
        await env.pass_time(60)
    async with Environment(str(path), workflows=KINDS, namespace="elsewhere", clock=env.clock) as abroad:
        await abroad.start(lives_asleep.options(id="asleep"), 3600)
        await abroad.pass_time(60)
    env = Environment(str(path), workflows=[*KINDS, changing_life(as_it_is)], clock=env.clock)
    await env.open()
    await (await env.app.get("held")).signal(word, "go on")
    await env.start(lives_in_activity.options(id="owned"))
    await env.start(lives_in_activity.options(id="owned and told"))
    await (await env.app.get("owned and told")).signal(word, "unheard")
    await env.pass_time(2)
    env.bury()
    await asyncio.sleep(0)
    if isinstance(path, Path):
        # One file without a log can be copied as it is.
        with closing(sqlite3.connect(path)) as db:
            db.execute("pragma wal_checkpoint(truncate)")


async def _begin(env: Environment) -> None:
    """Start runs of every kind."""
    await env.run(lives_in_steps.options(id="steps", timeout=600), "step")
    await env.run(lives_in_steps.options(id="large"), LARGE)
    await env.run(lives_in_steps.options(id="again"), "first")
    await env.run(lives_in_steps.options(id="again", on_conflict="replace"), "second")
    await env.run(lives_on_retries.options(id="retries"), str(env.path))
    for kind, id in (
        (lives_in_vain, "in vain"),
        (cleans_up_for_long, "cancelled"),
        (cleans_up_for_long, "cancelled twice"),
        (fails_to_live, "failed"),
        (lives_with_children, "parent"),
        (lives_before_children, "leaver"),
    ):
        await env.start(kind.options(id=id))
    await env.start(lives_asleep.options(id="asleep"), 3600)
    await env.start(lives_asleep.options(id="timed out", timeout=30), 3600)
    await env.start(lives_asleep.options(id="has a timeout", timeout=7200), 3600)
    await env.start(lives_in_steps.options(id="delayed", delay=7200), "late")
    await env.start(lives_on_words.options(id="words"), 3)
    await env.start(lives_on_words.options(id="terminated"), 3)
    await env.start(lives_in_generations.options(id="generations"), 2)


async def _talk(env: Environment) -> None:
    """Send signals and requests to stop."""
    for id in ("words", "generations", "child in generations"):
        run = await env.app.get(id)
        for payload in ("one", "one", "two"):
            await run.signal(word, payload, id=payload)
        await run.signal(other, "to nobody")
        await env.settle()
    for id in ("words", "generations", "child in generations"):
        await (await env.app.get(id)).signal(word, LARGE)
        await env.settle()
    await (await env.app.get("cancelled")).cancel("enough", deadline=7200)
    await (await env.app.get("cancelled twice")).cancel("enough")
    await env.settle()
    await (await env.app.get("cancelled twice")).cancel("at last")
    await (await env.app.get("terminated")).terminate("at once")
    await env.start(lives_on_words.options(id="words", on_conflict="terminate"), 4)
    await (await env.app.get("delayed")).signal(word, "early")
