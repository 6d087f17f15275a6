"""An environment on Postgres: its time is virtual, that of the server is not."""

import asyncio
from typing import Any

import pytest

from perdure.stores.postgres import scan_floor
from perdure.testing import Environment
from tests.test_parking import post_from_elsewhere, waits_for_approval


async def test_closing_waits_for_a_server_that_takes_its_time(empty_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine ten minutes had passed, all of them virtual, before the server had closed a connection."""
    env = Environment(empty_url)
    await env.open()
    readers: Any = vars(env.store)["inner"].readers.links  # its store is that of Postgres
    close = readers.close

    async def close_slowly() -> None:
        await asyncio.sleep(1.0)
        await close()

    monkeypatch.setattr(readers, "close", close_slowly)
    await env.__aexit__()


async def test_a_server_that_takes_its_time_hides_no_run(empty_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine every look is slow: what was ripe before is left out then, and real time brings it back."""
    monkeypatch.setattr(scan_floor, "SLOW_SECONDS", -1.0)
    async with Environment(empty_url) as env:
        run = await env.start(waits_for_approval)
        await env.pass_time(30)

        await post_from_elsewhere(env, run.run_id, "ann")

        assert await env.result(run) == "ASKED ann"
