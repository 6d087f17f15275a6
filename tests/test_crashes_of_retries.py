"""Crashes on the way of a retry and a fork: whatever happens at whichever commit, there is one, and it ends well."""

import asyncio
import itertools
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from perdure import Retry, Run, RunFailed, Signal, StoreUnavailable, activity, workflow
from perdure.testing import Crash, Environment, Fault

sent, late = Signal("retried-sent", int), Signal("retried-late", int)
calls: Counter[str] = Counter()


@activity
async def prepares(number: int) -> int:
    calls["prepares"] += 1
    return number


@activity(retry=Retry(max_attempts=1))
async def is_up_later(number: int) -> int:
    calls["is up later"] += 1
    if calls["down"]:
        raise ConnectionError("down")
    return number * 2


@workflow
async def is_retried(number: int) -> list[int]:
    first = await prepares(number)
    return [first, await sent.receive(), await is_up_later(first), await late.receive()]


class RetriedStory:
    """A run that fails, its retry and a fork of that, by a client that asks again after every crash."""

    def __init__(self, env: Environment) -> None:
        self.env = env

    async def patiently(self, ask: Any) -> Any:
        for _ in range(50):
            if self.env.has_died:
                await self.env.crash()
            try:
                return await self.env.alive(ask())
            except (Crash, StoreUnavailable):
                self.env.clock.advance(1000)
        raise AssertionError("no answer")

    async def result(self, run: Run[Any]) -> Any:
        async def ask() -> Any:
            return await (await self.env.app.get(run_id=run.run_id)).result()

        return await self.patiently(ask)

    async def run(self) -> object:
        calls["down"] = 1
        old = await self.patiently(lambda: self.env.app.start(is_retried.options(id="story"), 3))
        for signal, number in ((late, 2), (sent, 1)):
            await self.patiently(lambda signal=signal, number=number: self._signal(old, signal, number))
        with pytest.raises(RunFailed):
            await self.result(old)
        calls["down"] = 0
        before = await self._history(old)
        again = await self.patiently(lambda: self._of(old, "retry"))
        results = [await self.result(again)]
        fork = await self.patiently(lambda: self._of(again, "fork"))
        results.append(await self.result(fork))
        assert await self._history(old) == before
        for made, origin, seq in ((again, old, 3), (fork, again, 2)):
            assert (await self._history(made))[:seq] == (await self._history(origin))[:seq]
        runs = sorted((run.id, run.status.value) for run in await self.env.app.list())
        return results, runs, [(event.kind, event.place) for event in await self._history(fork)]

    async def _signal(self, run: Run[Any], signal: Signal[int], number: int) -> None:
        await (await self.env.app.get(run_id=run.run_id)).signal(signal, number, id=str(number))

    async def _of(self, run: Run[Any], what: str) -> Run[Any]:
        found = await self.env.app.get(run_id=run.run_id)
        if what == "retry":
            return await found.retry()
        # An answer that was lost is looked for under the id.
        made = await self.env.app.list(id="fork")
        if made:
            return await self.env.app.get("fork")
        return await found.fork(at=2, id="fork", results={})

    async def _history(self, run: Run[Any]) -> list[Any]:
        return [event async for event in (await self.env.app.get(run_id=run.run_id)).events()]


async def take(path: Path, fault: tuple[int, Fault] | None) -> tuple[object, int]:
    """What came of one story, and the number of commits it took."""
    calls.clear()
    env = Environment(str(path))
    await env.open(fault)
    found = await RetriedStory(env).run()
    commits = env.commits + env.store.commits
    await env.__aexit__()
    return found, commits


def test_a_fault_at_any_commit_changes_nothing_of_retries_and_forks(quick_path: Path) -> None:
    """Every commit on the way, every kind of fault: one retry, one fork, each with its signals."""

    async def all_faults() -> None:
        expected, commits = await take(quick_path / "plain.db", None)
        assert expected[0] == [[3, 1, 6, 2], [3, 1, 6, 2]]  # type: ignore[index]  # a tuple
        for fault, number in itertools.product(Fault, range(1, commits + 1)):
            found, _ = await take(quick_path / f"{fault.name}-{number}.db", (number, fault))
            assert found == expected, f"{fault} at commit {number}"

    asyncio.run(all_faults())
