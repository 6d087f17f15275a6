"""A schedule of every second, and workers that die: no time is missing, none is there twice."""

import os

import pytest

from tests.processes.holders import kill_holders
from tests.processes.sites import Site

KILLS = int(os.environ.get("KILLS") or 50)


async def test_no_time_is_lost_or_doubled_when_the_holder_of_the_duty_is_killed(site: Site) -> None:
    await kill_holders(site, 3)


@pytest.mark.long
@pytest.mark.timeout(3600)
async def test_fifty_holders_are_killed(site: Site) -> None:
    await kill_holders(site, KILLS)
