"""Processes that are killed, frozen or asked to leave, and others that go on with their runs."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tests.postgres.proxies import Proxy
from tests.postgres.sites import PostgresSite, chance
from tests.processes.clients import Client, Oracle, Witness
from tests.processes.sites import Node, recorded_steps, repeated, steps, until
from tests.processes.workflows import plodding, ticking

RUNS = 50
LEASE_SECONDS = 3.0
# Longer than any test waits: whoever takes over before that has not waited for it.
LONG_LEASE = ("--lease", "3600")
IN_FLIGHT = 20
LEASE = ("--lease", "1.0", "--tell-fenced")
# A process that is frozen inside a transaction keeps its row until the server ends that.
FROZEN_SECONDS = 120.0
ZOMBIES = int(os.environ.get("ZOMBIES") or 50)
ROUNDS = int(os.environ.get("ROUNDS") or 50)


async def test_the_runs_of_a_killed_worker_run_elsewhere_without_waiting_for_its_lease(site: PostgresSite) -> None:
    """A process that is gone is noticed by its lock."""
    first = await site.worker(*LONG_LEASE)
    async with site.client() as app:
        for number in range(RUNS):
            await app.start(ticking.options(id=f"ticking-{number}"), f"ticking-{number}", 0.5)
        await until(lambda: len(recorded_steps(site.histories())) >= RUNS, "every run has done a step")
        second = await site.worker()
        assert site.owned_by(second) == 0
        first.kill()
        before, executed = recorded_steps(site.histories()), len(site.effects())

        took = await until(lambda: site.owned_by(second) == RUNS, "the second worker takes over")

        print(f"{RUNS} runs taken over after {took:.2f} s")
        await site.until_all_ended()
    assert site.outcomes() == {f"ticking-{n}": ("COMPLETED", steps(f"ticking-{n}")) for n in range(RUNS)}
    assert repeated(before, site.effects()[executed:]) == []
    site.check()


async def test_the_runs_of_a_worker_that_is_told_to_leave_run_elsewhere(site: PostgresSite) -> None:
    """Every deployment does this: what was under way is handed over, not lost and found."""
    first = await site.worker(*LONG_LEASE)
    async with site.client() as app:
        for number in range(RUNS):
            await app.start(plodding.options(id=f"plodding-{number}"), f"plodding-{number}", 60)
        await until(lambda: len(recorded_steps(site.histories())) >= RUNS, "every run has done a step")
        second = await site.worker()
        assert site.owned_by(second) == 0

        assert await first.leave(signal.SIGTERM) == 0, first.log.read_text()

        assert site.worker_ids(first) == []
        before, executed = recorded_steps(site.histories()), len(site.effects())
        took = await until(lambda: site.owned_by(second) == RUNS, "the second worker goes on with them")
        print(f"{RUNS} runs handed over, all owned again after {took:.2f} s")
        await site.until_all_ended()
    assert await second.leave() == 0
    assert site.rows("select run_id from runs where losses > 0") == []
    assert site.outcomes() == {f"plodding-{n}": ("COMPLETED", steps(f"plodding-{n}", 60)) for n in range(RUNS)}
    assert repeated(before, site.effects()[executed:]) == []
    site.check()


async def test_the_runs_of_a_worker_that_is_cut_off_run_elsewhere_after_its_lease(site: PostgresSite) -> None:
    """The server does not know that nobody is at the other end; what comes late from there is refused."""
    async with site.client() as app, Proxy(site.server.port) as proxy:
        direct, site.url = site.url, site.url_by(proxy.port)
        remote = await site.worker("--lease", f"{LEASE_SECONDS}", "--tell-fenced")
        site.url = direct
        for number in range(RUNS):
            await app.start(plodding.options(id=f"plodding-{number}"), f"plodding-{number}", 100)
        await until(lambda: len(recorded_steps(site.histories())) >= RUNS, "every run has done a step")
        near = await site.worker()
        proxy.part()

        took = await until(lambda: site.owned_by(near) == RUNS, "the other worker takes over")

        print(f"{RUNS} runs taken over after {took:.2f} s")
        former = site.worker_ids(remote)
        proxy.mend()
        await until(lambda: site.worker_ids(remote) not in ([], former), "it begins anew")
        await site.until_all_ended()
        assert [await worker.leave() for worker in (remote, near)] == [0, 0]
    assert site.outcomes() == {f"plodding-{n}": ("COMPLETED", steps(f"plodding-{n}", 100)) for n in range(RUNS)}
    site.check()


@asynccontextmanager
async def under_load(site: PostgresSite, oracle: Oracle, *, is_patient: bool = False) -> AsyncIterator[None]:
    """Meanwhile a client starts and signals runs; afterwards all of them end."""
    async with site.client() as app:
        client = Client(app, site, oracle, chance(), in_flight=IN_FLIGHT, is_patient=is_patient)
        feeding = asyncio.create_task(client.feed())
        yield
        assert not feeding.done(), feeding.exception()
        client.is_closing = True
        await feeding
        await client.finish()
        await site.until_all_ended()


SUSPECTS = "select count(*) from runs where closed_at is null and losses >= 2"
SUSPECTS_SECONDS = 120


async def run_zombies(site: PostgresSite, cycles: int) -> None:
    """Freeze one of two workers under load until the other has its runs, and let it come back, again and again."""
    oracle = Oracle()
    witness = Witness(site, oracle, may_repeat=True)
    workers = [await site.worker(*LEASE) for _ in range(2)]
    # Who signals a run that a frozen process has in an open transaction is told so, and asks again.
    async with under_load(site, oracle, is_patient=True):
        for number in range(cycles):
            await haunt(site, workers[number % 2], witness)
    assert [await worker.leave() for worker in workers] == [0, 0]
    witness.check()
    assert site.rows("select * from workers") == []
    fenced = sum(len(worker.heard("fenced")) for worker in workers)
    lost = sum(worker.log.read_text().count("lease lost") for worker in workers)
    print(f"{cycles} zombies, {fenced} commits refused, {lost} leases lost, {len(oracle.read('start'))} runs")
    assert lost >= cycles
    # One that renews its lease before it writes is refused there.
    assert fenced > 0 or cycles < 10


async def haunt(site: PostgresSite, zombie: Node, witness: Witness) -> None:
    """Freeze a worker at any moment until another one has its runs; then let it come back.

    Not before what was lost twice got on: five losses of the same, alone, would be held against it.
    """
    await until(lambda: site.rows(SUSPECTS) == [(0,)], "no run is a suspect any more", SUSPECTS_SECONDS)
    await until(lambda: site.owned_by(zombie) >= 5, "it has something to lose")
    zombie.send(signal.SIGSTOP)
    try:
        await until(zombie.is_frozen, f"node {zombie.pid} stands still")
        former = site.worker_ids(zombie)
        await until(lambda: site.worker_ids(zombie) == [], "it is taken over", FROZEN_SECONDS)
        witness.look()
    finally:
        zombie.send(signal.SIGCONT)
    await until(lambda: site.worker_ids(zombie) not in ([], former), "it begins anew")


async def test_zombies_are_refused_under_load(site: PostgresSite) -> None:
    """Two workers that both believe to own a run must not both write its history."""
    await run_zombies(site, 2)


@pytest.mark.long
@pytest.mark.timeout(1200)
async def test_fifty_zombies_are_refused_under_load(site: PostgresSite) -> None:
    """The late commit that is not fenced is a rare one."""
    await run_zombies(site, ZOMBIES)


def step_p99_ms(site: PostgresSite, begin: int, end: int) -> int:
    """How long the slowest steps took that ended within this time, from one event of their run to the next."""
    sql = """
        select took
          from (select at, at - lag(at) over (partition by events.run_id order by seq) as took
                  from events
                  join runs using (run_id)
                 where workflow = 'plain') as steps
         where took is not null and at between ? and ?
         order by took"""
    took = [ms for (ms,) in site.rows(sql, begin, end)]
    # On a busy machine no step of these may have ended meanwhile.
    return int(took[len(took) * 99 // 100]) if took else 0


def now(site: PostgresSite) -> int:
    return int(site.value("select (extract(epoch from clock_timestamp()) * 1000)::bigint"))


async def run_rounds(site: PostgresSite, rounds: int, normal_steps: int) -> tuple[int, int]:
    """Each of three workers is asked to leave when its successor is there, again and again.

    Answers how long the slowest steps took, before that and meanwhile.
    """
    oracle = Oracle()
    witness = Witness(site, oracle)
    workers = [await site.worker() for _ in range(3)]
    async with under_load(site, oracle):
        await site.until_more(IN_FLIGHT)
        begin = now(site)
        await site.until_more(normal_steps)
        middle = now(site)
        for _ in range(rounds):
            for number in range(3):
                await until(lambda: site.busy_runs() > IN_FLIGHT, "there is work")
                successor = await site.worker()
                assert await workers[number].leave() == 0, workers[number].log.read_text()
                assert site.worker_ids(workers[number]) == []
                workers[number] = successor
                witness.look()
            await site.until_more(IN_FLIGHT)
        end = now(site)
    assert [await worker.leave() for worker in workers] == [0, 0, 0]
    witness.check()
    assert site.rows("select run_id from runs where losses > 0") == []
    normal, rolling = step_p99_ms(site, begin, middle), step_p99_ms(site, middle, end)
    print(f"{rounds} rounds, {len(oracle.read('start'))} runs, {len(site.effects())} steps executed")
    print(f"p99 of a step {normal} ms, during the rounds {rolling} ms")
    return normal, rolling


async def test_a_rolling_restart_fails_and_repeats_nothing(site: PostgresSite) -> None:
    """Every deployment does this: whoever leaves hands its runs back, and others go on with them."""
    await run_rounds(site, 2, 100)


@pytest.mark.long
@pytest.mark.timeout(1800)
async def test_fifty_rolling_restarts_fail_and_repeat_nothing(site: PostgresSite) -> None:
    """A hand-over that goes wrong is a rare one."""
    normal, rolling = await run_rounds(site, ROUNDS, 3000)
    assert rolling <= 10 * normal
