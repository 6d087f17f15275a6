"""The same on Postgres: a schedule of every second, and workers that die."""

import os

import pytest

from tests.postgres.sites import PostgresSite
from tests.processes.holders import kill_holders

KILLS = int(os.environ.get("KILLS") or 50)


async def test_no_time_is_lost_or_doubled_when_the_holder_of_the_duty_is_killed(site: PostgresSite) -> None:
    await kill_holders(site, 3)


@pytest.mark.long
@pytest.mark.timeout(3600)
async def test_fifty_holders_are_killed(site: PostgresSite) -> None:
    await kill_holders(site, KILLS)
