"""Subscriptions across real processes: writers are killed, and what they had committed is told."""

import asyncio

from perdure import Perdure
from tests.processes.sites import Site, until


async def test_every_run_that_a_killed_worker_had_started_is_told(site: Site) -> None:
    """A writer that dies between its commit and whatever it would tell others leaves nobody in the dark."""
    told: set[str] = set()

    async def follow() -> None:
        async with Perdure(site.url, worker=False) as app:
            async for change in app.subscribe():
                told.add(change.run.id)

    following = asyncio.ensure_future(follow())
    acknowledged: set[str] = set()
    for _ in range(3):
        worker = await site.worker("--habit", "start_runs")
        await until(lambda worker=worker: len(worker.heard("started")) > 20, "runs are acknowledged")  # type: ignore[misc]
        worker.kill()
        acknowledged |= {*worker.heard("started")}
    await until(lambda: acknowledged <= told, "all that was acknowledged is told")
    following.cancel()
    await asyncio.gather(following, return_exceptions=True)
