"""Whoever waits for many runs pays for each of them what one pays who waits for few."""

import asyncio
from collections.abc import Sequence

import pytest

from perdure import RunTerminated, Signal, workflow
from perdure.engine.waiting import waiters
from perdure.stores.operations import CloseFreeRun, PostMessage
from perdure.testing import Environment

go = Signal("go", int)
# In one bite, of which there are small ones here.
BITE = 100
LOOKS = 10


@workflow
async def waits_for_go() -> int:
    return await go.receive()


@pytest.fixture
def client(env: Environment, monkeypatch: pytest.MonkeyPatch) -> Environment:
    """A process without a worker, on the same database."""
    for name, value in {"OLDEST": 20, "TURN": 80, "QUIET_TIMES": 1}.items():
        monkeypatch.setattr(waiters, name, value)
    return Environment(env.path, worker=False)


def counted(client: Environment) -> list[int]:
    """How many runs each question asks for, from now on."""
    asked: list[int] = []
    ask = client.store.reads.ended_or_held

    async def ended_or_held(run_ids: Sequence[str]) -> object:
        asked.append(len(run_ids))
        return await ask(run_ids)

    client.store.reads.ended_or_held = ended_or_held  # type: ignore[assignment,method-assign]  # counts and asks
    return asked


async def ended(client: Environment, *run_ids: str) -> None:
    """Another process ends these."""
    now = client.clock.now()
    await client.elsewhere(*([CloseFreeRun(run_id, "main", "TERMINATED", "{}", now, False)] for run_id in run_ids))


@pytest.mark.parametrize("many", [50, 700])
async def test_a_look_asks_for_so_many_awaited_runs_and_no_more(client: Environment, many: int) -> None:
    """All of them at every look would be 50,000 questions for each result of 50,000."""
    async with client:
        runs = [await client.start(waits_for_go) for _ in range(many)]
        results = [asyncio.ensure_future(run.result()) for run in runs]
        await client.pass_time(1)
        asked = counted(client)
        for number in range(LOOKS):
            post = PostMessage(
                runs[0].run_id, f"m{number}", "SignalSent", '{"name":"x","payload":1}', client.clock.now()
            )
            await client.elsewhere([post])
            await client.pass_time(0.05)
        for result in results:
            result.cancel()

    assert max(asked) <= BITE
    assert sum(asked) <= (LOOKS + 1) * min(many, BITE)


async def test_an_end_is_told_though_many_others_are_awaited_and_nothing_changes_any_more(client: Environment) -> None:
    async with client:
        runs = [await client.start(waits_for_go) for _ in range(700)]
        results = [asyncio.ensure_future(run.result()) for run in runs]
        await client.pass_time(0.1)
        # One that is neither among the first nor just at its turn.
        await ended(client, runs[650].run_id)
        for _ in range(2 * 700 // BITE + 1):
            await client.pass_time(0.05)
        assert [number for number, result in enumerate(results) if result.done()] == [650]
        with pytest.raises(RunTerminated):
            await results[650]
        for result in results:
            result.cancel()


async def test_the_ends_of_many_are_told_in_one_look(client: Environment) -> None:
    """They are asked for once each, and nobody waits for the next look while there are more."""
    async with client:
        runs = [await client.start(waits_for_go) for _ in range(700)]
        results = [asyncio.ensure_future(run.result()) for run in runs]
        await client.pass_time(0.1)
        await ended(client, *(run.run_id for run in runs))
        asked = counted(client)
        await client.pass_time(0.05)
        assert all(result.done() for result in results)
        await asyncio.gather(*results, return_exceptions=True)

    assert sum(asked) <= 1.5 * len(runs)
