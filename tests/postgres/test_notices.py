"""Notices leave nothing behind on the connection they were given by."""

import asyncio

import asyncpg

from perdure.stores.postgres_address import address_of
from perdure.stores.postgres_life import channel_of
from perdure.stores.postgres_notices import News, Notices


async def test_a_notice_does_not_take_the_sync_from_later_commits(postgres_url: str) -> None:
    """A transaction pooler hands the same connection to the next batch, and what that commits must be on disk."""
    address = address_of(postgres_url)
    heard: asyncio.Queue[str] = asyncio.Queue()
    listening = await asyncpg.connect(address.dsn)
    await listening.add_listener(channel_of(address.schema), lambda *said: heard.put_nowait(str(said[3])))
    notices = Notices(address, "somebody")
    connection = await notices._link.connection()
    problems: list[object] = []
    connection.add_log_listener(lambda _, message: problems.append(message))

    notices.tell(News.WORK)
    assert notices._telling is not None
    await notices._telling
    await heard.get()

    assert await connection.fetchval("show synchronous_commit") == "on"
    assert problems == []
    await notices.close()
    await listening.close()
