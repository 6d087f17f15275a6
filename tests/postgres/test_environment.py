"""An environment on Postgres: its time is virtual, that of the server is not."""

import asyncio
from typing import Any

import pytest

from perdure.testing import Environment


async def test_closing_waits_for_a_server_that_takes_its_time(empty_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine ten minutes had passed, all of them virtual, before the server had closed a connection."""
    env = Environment(empty_url)
    await env.open()
    readers: Any = vars(env.store)["_readers"]  # its store is that of Postgres
    close = readers.close

    async def close_slowly() -> None:
        await asyncio.sleep(1.0)
        await close()

    monkeypatch.setattr(readers, "close", close_slowly)
    await env.__aexit__()
