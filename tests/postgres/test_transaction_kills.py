"""kill -9 during transactional activities on Postgres."""

import psycopg
import pytest

from perdure import Perdure
from tests.postgres.sites import PostgresSite
from tests.processes.transactions import MANY_KILLS, TABLE, kill_during_transactions


async def _make(site: PostgresSite) -> None:
    """The tables of Perdure in their schema, and one more where its user sees it."""
    async with Perdure(site.url, worker=False):
        pass
    with psycopg.connect(site.server.url, autocommit=True) as db:
        db.execute("drop table if exists kept")
        db.execute(TABLE)


async def test_kills_leave_as_many_rows_as_outcomes(site: PostgresSite) -> None:
    """Rows and outcome are on disk together, or neither is."""
    await _make(site)
    await kill_during_transactions(site, 3, on_postgres=True)


@pytest.mark.long
@pytest.mark.timeout(1800)
async def test_many_kills_leave_as_many_rows_as_outcomes(site: PostgresSite) -> None:
    """Rare moments are met only by many kills."""
    await _make(site)
    await kill_during_transactions(site, MANY_KILLS, on_postgres=True)
