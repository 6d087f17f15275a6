"""Runs that wait for days are rows, and come back when something happens."""

from datetime import UTC, datetime

from perdure import Run, Status
from tests.processes.sites import Site, until
from tests.processes.workflows import FAR_FUTURE, awaiting, poke, sleeping

QUICK = ("--park-after", "0.1")


async def status(run: Run[list[str]]) -> Status:
    return (await run.describe()).status


def is_parked(site: Site, run: Run[list[str]]) -> bool:
    sql = "select status, owner from runs where run_id = ?"
    return bool(site.rows(sql, run.run_id) == [("SUSPENDED", None)])


async def test_a_run_that_sleeps_for_days_needs_no_process(site: Site) -> None:
    """What it waits for is known though nothing runs, and a signal wakes it in whatever process works then."""
    first = await site.worker(*QUICK)
    async with site.client() as app:
        asleep = await app.start(sleeping.options(id="asleep"), "asleep")
        awaits = await app.start(awaiting.options(id="awaits"), "awaits")
        await until(lambda: is_parked(site, asleep) and is_parked(site, awaits), "both runs are parked")
        first.kill()

        info = await asleep.describe()
        (timer,) = info.waiting_for
        assert (info.status, timer.kind) == (Status.SUSPENDED, "timer")
        assert timer.until is not None
        assert abs(timer.until - FAR_FUTURE - datetime.now(UTC)).total_seconds() < 60
        waits = {wait.kind: wait.name for wait in (await awaits.describe()).waiting_for}
        assert waits == {"signal": "poke", "timer": None}
        assert await status(awaits) == Status.SUSPENDED

        second = await site.worker(*QUICK)
        await awaits.signal(poke, "now")
        await until(lambda: site.value("select closed_at from runs where workflow_id = 'awaits'"), "it ends")
        assert await awaits.result() == ["now", "awaits:1"]
        assert await asleep.describe() == info
    assert await second.leave() == 0
    site.check()


async def test_a_signal_nobody_waits_for_does_not_cut_a_sleep_short(site: Site) -> None:
    """The run is woken, finds that it still sleeps, and is parked again until the same moment."""
    worker = await site.worker(*QUICK)
    async with site.client() as app:
        asleep = await app.start(sleeping, "asleep")
        await until(lambda: is_parked(site, asleep), "the run is parked")
        until_then = (await asleep.describe()).waiting_for

        await asleep.signal(poke, "for nobody")
        await until(lambda: not is_parked(site, asleep), "the run is woken")
        await until(lambda: is_parked(site, asleep), "the run is parked again")

        assert (await asleep.describe()).waiting_for == until_then
        assert [effect.number for effect in site.effects()] == [0]
    assert await worker.leave() == 0
    site.check()
