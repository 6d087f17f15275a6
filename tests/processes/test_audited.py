"""The audit beside real processes that write, take over and die."""

import asyncio

from perdure.stores.sqlite.checks.audit import audit_of
from tests.processes.sites import Site, until
from tests.processes.workflows import cancelled, family, generations, plain, poke, signalled, timed

KINDS = (plain, timed, family, generations, signalled)


async def test_an_audit_beside_processes_at_work_sees_one_moment(site: Site) -> None:
    """Whoever asks forty questions while others write must not mix two moments, be it while one of them dies."""
    first, _ = await site.worker(), await site.worker()
    audits = 0
    async with site.client() as app:
        for number in range(8):
            runs = [
                await app.start(kind.options(id=f"{kind.name}-{number}"), f"{kind.name}-{number}") for kind in KINDS
            ]
            for word in ("go", "on"):
                await runs[-1].signal(poke, word)
            stopped = await app.start(cancelled.options(id=f"stopped-{number}"), f"stopped-{number}")
            await stopped.cancel("enough", deadline=5)
            if number == 4:
                first.kill()
            for _ in range(5):
                found = await asyncio.to_thread(audit_of, site.path)
                assert found.violations == ()
                audits += 1
        await until(lambda: site.open_runs() == 0, "all runs end", within=300)
    assert audits == 40
    site.check()
