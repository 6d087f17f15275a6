"""Crashes while something is asked under idempotency keys: asked again after each, everything is done once."""

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

from perdure import KeyInProgress, Run, Signal, StoreUnavailable, workflow
from perdure.testing import Crash, Environment, Fault

crashed_knock = Signal("crashed-knock", int)


@workflow
async def crashed_counts(knocks: int) -> list[int]:
    return [await crashed_knock.receive() for _ in range(knocks)]


async def patiently(env: Environment, ask: Callable[[], Awaitable[Any]]) -> Any:
    """The answer, asked for again after every crash; whoever has taken a key and died is waited for."""
    for _ in range(50):
        if env.has_died:
            await env.crash()
        try:
            return await env.alive(ask())
        except (Crash, StoreUnavailable):
            env.clock.advance(1000)
        except KeyInProgress:
            env.clock.advance(600_000)
    raise AssertionError("no answer")


async def take(path: Path, fault: tuple[int, Fault] | None) -> tuple[object, int]:
    """What came of it, and the number of commits it took."""
    env = Environment(str(path))
    await env.open(fault)

    async def of(run: Run[Any]) -> Run[Any]:
        return await env.app.get(run_id=run.run_id)

    async def signal(number: int) -> None:
        await (await of(run)).with_key(f"s{number}").signal(crashed_knock, number)

    async def result() -> object:
        return await (await of(run)).result()

    run = await patiently(env, lambda: env.app.with_key("k").start(crashed_counts, 3))
    again = await patiently(env, lambda: env.app.with_key("k").start(crashed_counts, 3))
    assert run.run_id == again.run_id
    for number in (1, 2, 2):
        await patiently(env, partial(signal, number))
    sent = [
        await patiently(env, lambda: env.app.with_key("b").broadcast(crashed_knock, 3, where="true")) for _ in range(2)
    ]
    assert sent[0] == sent[1]
    found = await patiently(env, result), await patiently(env, lambda: env.app.count())
    commits = env.commits + env.store.commits
    await env.__aexit__()
    return found, commits


def test_a_fault_at_any_commit_does_nothing_twice_under_a_key(quick_path: Path) -> None:
    """Every commit on the way, every kind of fault: one run, each signal once, in their order."""

    async def all_faults() -> None:
        expected, commits = await take(quick_path / "plain.db", None)
        assert expected == ([1, 2, 3], 1)
        for fault, number in itertools.product(Fault, range(1, commits + 1)):
            found, _ = await take(quick_path / f"{fault.name}-{number}.db", (number, fault))
            assert found == expected, f"{fault} at commit {number}"

    asyncio.run(all_faults())
