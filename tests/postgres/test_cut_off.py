"""Connections that are ended, by the server or on the way to it, at moments that nobody chose."""

import asyncio
import os

import pytest

from tests.postgres.proxies import Cut, Proxy
from tests.postgres.sites import PostgresSite, chance
from tests.processes.clients import Client, Oracle, Witness
from tests.processes.sites import until

IN_FLIGHT = 20
TERMINATED = int(os.environ.get("TERMINATED") or 200)
CASES = [(cut, what) for cut in Cut for what in ("batch", "commit")]
CUTS = int(os.environ.get("CUTS") or 300)


async def run_terminations(site: PostgresSite, count: int) -> None:
    draw = chance()
    oracle = Oracle()
    witness = Witness(site, oracle)
    workers = [await site.worker() for _ in range(2)]
    ended: dict[str, int] = {}
    async with site.client() as app:
        client = Client(app, site, oracle, draw, in_flight=IN_FLIGHT, is_patient=True)
        feeding = asyncio.create_task(client.feed())
        while sum(ended.values()) < count:
            await asyncio.sleep(draw.uniform(0.0, 0.2))
            pid, purpose = draw.choice(site.backends())
            if site.value("select pg_terminate_backend(?)", pid):
                ended[purpose] = ended.get(purpose, 0) + 1
            assert not feeding.done(), feeding.exception()
        witness.look()
        await site.until_more(IN_FLIGHT)
        client.is_closing = True
        await feeding
        await client.finish()
        await site.until_all_ended()
    assert [await worker.leave() for worker in workers] == [0, 0]
    witness.check()
    assert site.rows("select * from workers") == []
    print(f"{ended}, {len(oracle.read('start'))} runs, {len(site.effects())} steps executed")


async def test_backends_that_are_terminated_harm_nothing(site: PostgresSite) -> None:
    """An administrator ends what looks suspicious; whatever it did is done again, or was done."""
    await run_terminations(site, 10)


@pytest.mark.long
@pytest.mark.timeout(1200)
async def test_hundreds_of_backends_that_are_terminated_harm_nothing(site: PostgresSite) -> None:
    """Each connection has its moments."""
    await run_terminations(site, TERMINATED)


async def run_cuts(site: PostgresSite, count: int) -> None:
    """Worker and client reach the server by a proxy that cuts them off around what they commit."""
    draw = chance()
    oracle = Oracle()
    witness = Witness(site, oracle)
    async with Proxy(site.server.port) as proxy:
        site.url = site.url_by(proxy.port)
        worker = await site.worker()
        async with site.client() as app:
            client = Client(app, site, oracle, draw, in_flight=IN_FLIGHT, is_patient=True)
            feeding = asyncio.create_task(client.feed())
            for number in range(count):
                # Else it would be cut off for ever in its first tries to go on.
                await site.until_more(3)
                await asyncio.sleep(draw.uniform(0.0, 0.05))
                proxy.cut_next(*CASES[number % len(CASES)])
                await until(lambda: not proxy.is_about_to_cut, "a batch is cut off")
                witness.look()
                assert not feeding.done(), feeding.exception()
            await site.until_more(IN_FLIGHT)
            client.is_closing = True
            await feeding
            await client.finish()
            await site.until_all_ended()
        assert await worker.leave() == 0
    witness.check()
    assert site.rows("select * from workers") == []
    print(f"{proxy.told()}, {len(oracle.read('start'))} runs, {len(site.effects())} steps executed")


async def test_a_connection_that_is_cut_around_a_commit_makes_one_transition(site: PostgresSite) -> None:
    """Whether the server got it, or the answer was lost, is the same to who waits: what it wanted is there once."""
    await run_cuts(site, 10)


@pytest.mark.long
@pytest.mark.timeout(1200)
async def test_hundreds_of_cuts_around_commits_make_one_transition_each(site: PostgresSite) -> None:
    """Each kind of change is to be met by each kind of cut."""
    await run_cuts(site, CUTS)
