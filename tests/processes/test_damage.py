"""A file that is damaged while it is open: callers are told, and nobody waits for ever."""

import asyncio
import os
import sqlite3
from contextlib import closing

import pytest

from perdure import Perdure, activity, workflow
from perdure.errors import StoreUnavailable
from perdure.stores.sqlite import store as sqlite_store
from tests.processes.sites import Site

PAGE = 4096


@activity
async def be_there(key: str) -> str:
    return key


@workflow
async def damaged(key: str) -> str:
    return await be_there(key)


def damage(site: Site) -> None:
    """Overwrite all pages but the first, as a broken disk or a careless copy does."""
    with closing(sqlite3.connect(site.path, isolation_level=None)) as db:
        assert db.execute("pragma wal_checkpoint(truncate)").fetchone()[0] == 0
        # Not closed before the connections are, whose locks would go with it.
        file = os.open(site.path, os.O_RDWR)
        for start in range(PAGE, site.path.stat().st_size, PAGE):
            os.pwrite(file, b"\xff" * PAGE, start)
        # Whoever has pages in memory reads them again.
        db.execute("pragma user_version = 1")


@pytest.mark.parametrize("disk", ["quick", "slow"])
@pytest.mark.parametrize("worker", [False, True], ids=["client", "worker"])
async def test_callers_are_told_of_a_damaged_file(
    site: Site, monkeypatch: pytest.MonkeyPatch, disk: str, worker: bool
) -> None:
    """SQLite tells of damage by another error than of a full disk: readers got it bare, writers got no answer."""
    if disk == "slow":
        monkeypatch.setattr(sqlite_store, "INLINE_BELOW", 0)
    async with Perdure(site.url, worker=worker, workflows=[damaged], grace=0.1) as app:
        for number in range(50):
            await app.start(damaged.options(id=f"damaged-{number}"), "whole")
        damage(site)
        for number in range(3):
            with pytest.raises(StoreUnavailable, match="damaged"):
                await asyncio.wait_for(app.start(damaged.options(id=f"late-{number}"), "late"), timeout=60)
        with pytest.raises(StoreUnavailable, match="damaged"):
            await asyncio.wait_for(app.list(limit=1), timeout=60)
