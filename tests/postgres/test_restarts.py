"""A server that crashes again and again under load, and processes that go on by themselves."""

import asyncio
import os
import time

import pytest

from tests.postgres.sites import PostgresSite, chance
from tests.processes.clients import Client, Oracle, Witness
from tests.processes.node import REFUSED
from tests.processes.sites import recorded_steps, repeated, steps, until
from tests.processes.workflows import plodding
from tests.test_outages import told

IN_FLIGHT = 20
OUTAGE_SECONDS = 2.5
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


@pytest.mark.parametrize("delay", [0.0, 0.7])
async def test_a_worker_can_leave_while_the_server_is_down(site: PostgresSite, delay: float) -> None:
    """Machines are shut down in any order; what the worker has left others end when the server is back."""
    # Steps that are under way cannot be written; it waits for them no longer than that.
    worker = await site.worker("--grace", "1")
    async with site.client() as app:
        for number in range(10):
            await app.start(plodding.options(id=f"plodding-{number}"), f"plodding-{number}", 50)
        await site.until_more(20)
        await asyncio.to_thread(site.server.stop, "immediate")
        # The loss may not be noticed yet, or be old.
        await asyncio.sleep(delay)
        try:
            assert await worker.leave() == 0, worker.log.read_text()
        finally:
            await asyncio.to_thread(site.server.start)
        before, executed = recorded_steps(site.histories()), len(site.effects())
        heir = await site.worker()
        await site.until_all_ended()
    assert await heir.leave() == 0
    assert repeated(before, site.effects()[executed:]) == []
    assert site.outcomes() == {f"plodding-{n}": ("COMPLETED", steps(f"plodding-{n}", 50)) for n in range(10)}
    site.check()


async def test_a_worker_that_finds_no_server_says_so(site: PostgresSite) -> None:
    """Whoever starts it learns what is wrong, and can start it again."""
    node = await site.node().prepare()
    await asyncio.to_thread(site.server.stop, "immediate")
    try:
        node.go()
        assert await node.ends() == REFUSED, node.log.read_text()
        assert node.heard("refused") == ["opening StoreUnavailable"]
        assert node.troubles() == []
    finally:
        await asyncio.to_thread(site.server.start)


async def test_a_client_that_waits_for_nothing_tells_of_an_outage_once(
    site: PostgresSite, caplog: pytest.LogCaptureFixture
) -> None:
    """A look that asks the server nothing says nothing of it; lines that come by turns hide what is the matter."""
    async with site.client():
        await asyncio.to_thread(site.server.stop, "immediate")
        try:
            await until(lambda: told(caplog, "watch_failed"), "it notices")
            noticed = time.monotonic()
            await until(lambda: time.monotonic() - noticed > OUTAGE_SECONDS, "it has looked a few times")
            assert told(caplog, "watch_failed_over") == []
        finally:
            await asyncio.to_thread(site.server.start)
        await until(lambda: told(caplog, "watch_failed_over"), "it notices that as well")


async def test_two_crashes_of_the_server_lose_and_repeat_nothing(site: PostgresSite) -> None:
    """Who was told that something is on disk finds it after the crash; nobody has to be started again for it."""
    await run_restarts(site, 2)


@pytest.mark.long
@pytest.mark.timeout(1800)
async def test_many_crashes_of_the_server_lose_and_repeat_nothing(site: PostgresSite) -> None:
    """A crash meets another moment each time."""
    await run_restarts(site, RESTARTS)
