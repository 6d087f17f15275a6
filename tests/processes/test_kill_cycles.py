"""kill -9 again and again under load, checked against what another process was told.

The test's own process is the client: it starts runs and sends signals, and remembers each
acknowledgement before it goes on. Only worker processes are killed.
"""

import asyncio
import os
import random

import pytest

from tests.processes.clients import IN_FLIGHT, Client, Oracle, Witness
from tests.processes.sites import Node, Site, until

CYCLES = int(os.environ.get("CYCLES") or 500)


async def run_cycles(site: Site, cycles: int, *options: str) -> None:
    seed = int(os.environ.get("SEED") or random.SystemRandom().getrandbits(32))
    print(f"seed {seed}")
    chance = random.Random(seed)
    oracle = Oracle()
    witness = Witness(site, oracle)
    worker = await site.worker(*options)
    async with site.client() as app:
        client = Client(app, site, oracle, chance)
        feeding = asyncio.create_task(client.feed())
        for _ in range(cycles):
            successor = await site.node(*options).prepare()
            await is_loaded(site, worker)
            # The moment of the kill is chance, not synchronisation.
            await asyncio.sleep(chance.uniform(0.0, 0.25))
            worker.kill()
            assert site.open_runs() >= IN_FLIGHT
            assert not feeding.done(), feeding.exception()
            witness.look()
            worker = await follow(successor)
        client.is_closing = True
        await feeding
        await client.finish()
        await site.until_all_ended()
    assert await worker.leave() == 0
    witness.check()
    assert site.rows("select * from workers") == []
    signals, executed = len(oracle.read("signal")), len(site.effects())
    print(f"{cycles} kills, {len(oracle.read('start'))} runs, {signals} signals, {executed} steps executed")


async def is_loaded(site: Site, worker: Node) -> None:
    """Wait until there is enough to lose."""
    await until(lambda: site.owned_by(worker) >= IN_FLIGHT, "enough runs are in flight", within=300)


async def follow(successor: Node) -> Node:
    successor.go()
    await successor.hears("ready")
    return successor


@pytest.mark.parametrize("disk", ["quick", "slow"])
async def test_five_kills_lose_and_repeat_nothing(site: Site, disk: str) -> None:
    """The promise itself: what was acknowledged survives kill -9, and what was recorded is not done again."""
    await run_cycles(site, 5, *(["--slow-disk"] if disk == "slow" else []))


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("disk", ["quick", "slow"])
async def test_hundreds_of_kills_lose_and_repeat_nothing(site: Site, disk: str) -> None:
    """Rare moments are met only by many kills."""
    await run_cycles(site, CYCLES, *(["--slow-disk"] if disk == "slow" else []))
