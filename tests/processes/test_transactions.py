"""kill -9 during transactional activities on SQLite."""

import contextlib
import sqlite3
from pathlib import Path

import pytest

from perdure import Perdure
from tests.processes.sites import Site
from tests.processes.transactions import MANY_KILLS, TABLE, kill_during_transactions


async def _make(site: Site) -> None:
    """A database with the tables of Perdure, and one more."""
    async with Perdure(site.url, worker=False):
        pass
    with contextlib.closing(sqlite3.connect(Path(site.path))) as db:
        db.execute(TABLE)


async def test_kills_leave_as_many_rows_as_outcomes(site: Site) -> None:
    """Rows and outcome are on disk together, or neither is."""
    await _make(site)
    await kill_during_transactions(site, 4)


@pytest.mark.long
@pytest.mark.timeout(1800)
async def test_many_kills_leave_as_many_rows_as_outcomes(site: Site) -> None:
    """Rare moments are met only by many kills."""
    await _make(site)
    await kill_during_transactions(site, MANY_KILLS)
