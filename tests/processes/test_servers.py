"""Workers and callers over HTTP, and processes that die: servers as well as workers."""

import os

import pytest

from tests.processes.servers import kill_in_turn
from tests.processes.sites import Site

KILLS = int(os.environ.get("KILLS") or 100)


async def test_what_servers_and_remote_workers_have_done_survives_their_deaths(site: Site) -> None:
    """Servers keep nothing about workers, so that any of them goes on where another one died."""
    await kill_in_turn(site, 2)


@pytest.mark.long
@pytest.mark.timeout(3600)
async def test_servers_and_remote_workers_are_killed_a_hundred_times(site: Site) -> None:
    """Rare moments are met only by many kills."""
    await kill_in_turn(site, KILLS)
