"""Backups made with SQLite's own tools while workers write: each is one moment of the database, and goes on."""

import asyncio
import random
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from perdure import Workflow
from tests.processes.clients import Client, Oracle, expected
from tests.processes.nodes import until
from tests.processes.sites import Recorded, Site
from tests.processes.workflows import family, gathered, generations, plain, stumbling, timed

BACKUPS = 20
SHORT_LEASE = ("--lease", "1.0")
# Runs that need nobody, so that those of a backup can be worked to their end.
KINDS: list[Workflow[..., Any]] = [plain, timed, gathered, family, generations, stumbling]


def copy(source: Path, target: Path) -> None:
    """With the backup interface."""
    with closing(sqlite3.connect(source)) as db, closing(sqlite3.connect(target)) as backup:
        db.backup(backup)


def vacuum(source: Path, target: Path) -> None:
    """With a statement that writes a compact copy."""
    with closing(sqlite3.connect(source, isolation_level=None)) as db:
        db.execute("vacuum into ?", (str(target),))


async def back_up(site: Site, oracle: Oracle, number: int) -> Site:
    """A backup, checked for what was known before it began; it is put into a folder of its own."""
    folder = site.folder / f"backup-{number}"
    folder.mkdir()
    acknowledged = {run_id for _, run_id in oracle.read("start")}
    ended = {run_id for (run_id,) in site.rows("select run_id from runs where closed_at is not null")}
    restored = Site(folder)
    await asyncio.to_thread(copy if number % 2 else vacuum, site.path, restored.path)
    found = dict(restored.rows("select run_id, closed_at is not null from runs"))
    assert acknowledged <= found.keys()
    assert [run_id for run_id in ended if not found[run_id]] == []
    restored.check()
    return restored


async def work_on(restored: Site) -> None:
    """A worker started on the backup ends all its runs, as they would have ended."""
    try:
        worker = await restored.worker(*SHORT_LEASE)
        await until(lambda: restored.open_runs() == 0, "all runs of the backup end")
        assert await worker.leave() == 0
        outcomes = restored.outcomes()
        assert outcomes == {key: ("COMPLETED", expected(key)) for key in outcomes}
        restored.check()
    finally:
        restored.end()


async def run_backups(site: Site, count: int) -> None:
    oracle = Oracle()
    workers = [await site.worker(*SHORT_LEASE) for _ in range(2)]
    histories: list[dict[str, list[Recorded]]] = []
    took = 0.0
    async with site.client() as app:
        client = Client(app, site, oracle, random.Random(count), KINDS)
        feeding = asyncio.create_task(client.feed())
        for number in range(count):
            await until(lambda: site.open_runs() > 50, "there is something to back up")
            began = time.monotonic()
            restored = await back_up(site, oracle, number)
            took = max(took, time.monotonic() - began)
            histories.append(restored.histories())
            await work_on(restored)
            assert not feeding.done(), feeding.exception()
        client.is_closing = True
        await feeding
        await until(lambda: site.open_runs() == 0, "all runs end", within=300)
    assert [await worker.leave() for worker in workers] == [0, 0]
    final = site.histories()
    # What a backup has of a run is the beginning of what became of it.
    assert [run for past in histories for run, events in past.items() if final[run][: len(events)] != events] == []
    assert site.outcomes() == {key: ("COMPLETED", expected(key)) for key, _ in oracle.read("start")}
    site.check()
    print(f"{count} backups of up to {len(histories[-1])} runs, the longest took {took:.2f} s")


async def test_a_backup_is_a_moment_that_goes_on(site: Site) -> None:
    """People copy the file of a running worker with SQLite's tools, and start from the copy after a disaster."""
    await run_backups(site, 2)


@pytest.mark.long
@pytest.mark.timeout(600)
async def test_many_backups_are_moments_that_go_on(site: Site) -> None:
    """Each meets the workers in other transactions."""
    await run_backups(site, BACKUPS)
