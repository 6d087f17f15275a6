"""A server that crashes again and again under load, and processes that go on by themselves."""

import asyncio
import os

import pytest

from tests.postgres.sites import PostgresSite, chance
from tests.processes.clients import Client, Oracle, Witness
from tests.processes.sites import until

IN_FLIGHT = 20
RESTARTS = int(os.environ.get("RESTARTS") or 30)


async def run_restarts(site: PostgresSite, restarts: int) -> None:
    draw = chance()
    oracle = Oracle()
    witness = Witness(site, oracle)
    workers = [await site.worker() for _ in range(2)]
    async with site.client() as app:
        client = Client(app, site, oracle, draw, in_flight=IN_FLIGHT, is_patient=True)
        feeding = asyncio.create_task(client.feed())
        for _ in range(restarts):
            await until(lambda: all(site.owned_by(worker) for worker in workers), "both workers are at work")
            # The moment of the crash is chance, not synchronisation.
            await asyncio.sleep(draw.uniform(0.0, 0.5))
            await site.crash(draw.choice([0.0, 0.0, 0.3, 1.5]))
            witness.look()
            await site.until_more(IN_FLIGHT)
            assert not feeding.done(), feeding.exception()
            assert all(worker.is_running() for worker in workers)
        client.is_closing = True
        await feeding
        await client.finish()
        await site.until_all_ended()
    assert [await worker.leave() for worker in workers] == [0, 0]
    witness.check()
    assert site.rows("select * from workers") == []
    taken_over = sum(worker.log.read_text().count("took over") for worker in workers)
    print(f"{restarts} crashes, {len(oracle.read('start'))} runs, {len(site.effects())} steps, {taken_over} taken over")


@pytest.mark.timeout(180)
async def test_two_crashes_of_the_server_lose_and_repeat_nothing(site: PostgresSite) -> None:
    """Who was told that something is on disk finds it after the crash; nobody has to be started again for it."""
    await run_restarts(site, 2)


@pytest.mark.long
@pytest.mark.timeout(1800)
async def test_many_crashes_of_the_server_lose_and_repeat_nothing(site: PostgresSite) -> None:
    """A crash meets another moment each time."""
    await run_restarts(site, RESTARTS)
