"""kill -9 again and again while runs undo what they have done: nothing recorded is done again, nothing is left out."""

import asyncio
import json
import os
import random

import pytest

from perdure import Perdure
from tests.processes.sites import Node, Site, recorded_steps, repeated, until
from tests.processes.workflows import undoing

KILLS = int(os.environ.get("CYCLES") or 100)
# So many runs undo at once, and each has so much to undo.
RUNS, UNDOS = 20, 60


async def run_kills(site: Site, kills: int) -> None:
    seed = int(os.environ.get("SEED") or random.SystemRandom().getrandbits(32))
    print(f"seed {seed}")
    chance, started = random.Random(seed), 0
    worker = await site.worker()
    async with site.client() as app:
        for _ in range(kills):
            started = await start_runs(app, site, started)
            successor = await site.node().prepare()
            await is_undoing(site, worker)
            # The moment of the kill is chance, not synchronisation.
            await asyncio.sleep(chance.uniform(0.0, 0.1))
            worker.kill()
            before, executed = recorded_steps(site.histories()), len(site.effects())
            successor.go()
            await successor.hears("ready")
            worker = successor
            started = await start_runs(app, site, started)
            await is_undoing(site, worker)
            assert repeated(before, site.effects()[executed:]) == []
        await site.until_all_ended()
    assert await worker.leave() == 0
    check(site, started)
    print(f"{kills} kills, {started} runs, {len(site.effects())} undos executed")


async def start_runs(app: Perdure, site: Site, started: int) -> int:
    """So many that there is something to undo until the next kill; answers how many there were ever."""
    wanted = RUNS - site.open_runs()
    for number in range(started, started + wanted):
        await app.start(undoing.options(id=f"undoing-{number}"), f"undoing-{number}", UNDOS)
    return started + wanted


async def is_undoing(site: Site, worker: Node) -> None:
    """Wait until the worker has undone something."""
    await until(lambda: any(effect.pid == worker.pid for effect in site.effects()), "the worker undoes", within=120)


def check(site: Site, started: int) -> None:
    """Every run has failed as it was to, after it has undone everything once and newest first."""
    site.check()
    assert {key: status for key, (status, _) in site.outcomes().items()} == {
        f"undoing-{number}": "FAILED" for number in range(started)
    }
    for history in site.histories().values():
        assert [event.place.startswith("undo/") for event in history] == [True] * UNDOS
        undone = [json.loads(event.body)["result"].rpartition(":")[2] for event in history]
        assert undone == [str(number) for number in reversed(range(UNDOS))]


async def test_five_kills_while_unwinding_repeat_and_skip_nothing(site: Site) -> None:
    """What is undone twice may give back another's room; what is not undone is paid for."""
    await run_kills(site, 5)


@pytest.mark.long
@pytest.mark.timeout(1800)
async def test_a_hundred_kills_while_unwinding_repeat_and_skip_nothing(site: Site) -> None:
    """Rare moments are met only by many kills."""
    await run_kills(site, KILLS)
