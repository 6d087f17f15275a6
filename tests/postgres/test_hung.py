"""A process that stops in the middle of a transaction does not keep others from going on."""

import asyncio

import asyncpg
import pytest

from perdure.stores.postgres import presence
from perdure.stores.postgres.address import address_of
from perdure.stores.postgres.store import PostgresStore


async def test_a_process_that_stopped_between_telling_a_statement_and_running_it_is_ended(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server waits for such a one for ever, and with it waited who wanted to take its runs over."""
    monkeypatch.setattr(presence, "HUNG_MS", 50)
    store = PostgresStore(postgres_url)
    await store.open()
    name = {"application_name": "perdure writes", "idle_in_transaction_session_timeout": "50"}
    hung = await asyncpg.connect(address_of(postgres_url).dsn, server_settings=name)
    try:
        await hung.execute("begin")
        await hung.prepare("select 42")
        ended = asyncio.Event()
        hung.add_termination_listener(lambda _: ended.set())
        # The server ends what is idle for so long; this one it does not.
        await asyncio.sleep(0.2)
        assert not ended.is_set()

        await store.presence.dead_among([])

        await asyncio.wait_for(ended.wait(), 60)
    finally:
        hung.terminate()
        await store.close()
