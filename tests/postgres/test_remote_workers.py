"""The same on Postgres: workers and callers over HTTP, and processes that die."""

import os

import pytest

from tests.postgres.sites import PostgresSite
from tests.processes.servers import kill_in_turn

KILLS = int(os.environ.get("KILLS") or 100)


async def test_what_servers_and_remote_workers_have_done_survives_their_deaths(site: PostgresSite) -> None:
    await kill_in_turn(site, 2)


@pytest.mark.long
@pytest.mark.timeout(3600)
async def test_servers_and_remote_workers_are_killed_a_hundred_times(site: PostgresSite) -> None:
    await kill_in_turn(site, KILLS)
