"""A dead worker's runs go on at once; nobody waits for its lease."""

import time

import pytest

from perdure import Perdure
from tests.processes.sites import Site, recorded_steps, repeated, steps, until
from tests.processes.workflows import plodding, ticking

RUNS = 50
# Longer than any test waits: whoever takes over before that has not waited for it.
LONG_LEASE = ("--lease", "3600")


async def start_runs(app: Perdure, site: Site) -> None:
    for number in range(RUNS):
        await app.start(ticking.options(id=f"ticking-{number}"), f"ticking-{number}", 0.5)
    await until(lambda: len(recorded_steps(site.histories())) >= RUNS, "every run has done a step")


async def check_finished(site: Site, before: set[tuple[str, int]], executed: int) -> None:
    await until(lambda: site.open_runs() == 0, "all runs end")
    assert site.outcomes() == {f"ticking-{n}": ("COMPLETED", steps(f"ticking-{n}")) for n in range(RUNS)}
    assert repeated(before, site.effects()[executed:]) == []
    site.check()


async def test_a_running_worker_takes_over_without_waiting_for_the_lease(site: Site) -> None:
    """A process that is gone is noticed by its lock."""
    first = await site.worker(*LONG_LEASE)
    async with site.client() as app:
        await start_runs(app, site)
        second = await site.worker()
        assert site.owned_by(second) == 0
        first.kill()
        before, executed = recorded_steps(site.histories()), len(site.effects())

        await until(lambda: site.owned_by(second) == RUNS, "the second worker takes over")

        await check_finished(site, before, executed)


async def test_a_fresh_worker_makes_progress_without_waiting_for_the_lease(site: Site) -> None:
    """A crashed service that restarts goes on with its work, not with waiting."""
    first = await site.worker(*LONG_LEASE)
    async with site.client() as app:
        await start_runs(app, site)
        second = await site.node().prepare()
        first.kill()
        before, executed = recorded_steps(site.histories()), len(site.effects())
        # The timers that were pending are due by the time the new worker looks.
        await until(lambda: time.time() * 1000 > site.value("select max(at) from events") + 500, "timers are due")

        second.go()
        await until(lambda: recorded_steps(site.histories()) > before, "the second worker makes progress")

        await check_finished(site, before, executed)


@pytest.mark.parametrize("habit", ["fork", "fork_by_multiprocessing", "start_program"])
async def test_a_child_that_outlives_its_worker_does_not_keep_it_alive(site: Site, habit: str) -> None:
    """A forked child inherits open files; the lock that says "I live" must not be among them."""
    first = await site.worker("--habit", habit, *LONG_LEASE)
    async with site.client() as app:
        await start_runs(app, site)
        await first.hears("child")
        second = await site.worker()
        first.kill()
        before, executed = recorded_steps(site.histories()), len(site.effects())

        await until(lambda: site.owned_by(second) == RUNS, "the second worker takes over")

        await check_finished(site, before, executed)


async def test_children_that_come_and_go_do_no_harm(site: Site) -> None:
    """User code may use process pools in a worker that is writing all the time."""
    worker = await site.worker("--habit", "fork_often")
    async with site.client() as app:
        for number in range(40):
            await app.start(plodding.options(id=f"plodding-{number}"), f"plodding-{number}", 40)
        await until(lambda: site.open_runs() == 0, "all runs end")
    worker.kill()
    assert site.outcomes() == {f"plodding-{n}": ("COMPLETED", steps(f"plodding-{n}", 40)) for n in range(40)}
    site.check()
