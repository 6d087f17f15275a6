"""A server that burns down under load, and the standby that followed it commit by commit."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from tests.postgres.sites import PostgresSite, chance
from tests.processes.clients import Client, Oracle, Witness
from tests.processes.sites import until
from tools import servers

IN_FLIGHT = 20


@pytest.fixture
def pair() -> Iterator[tuple[servers.Server, servers.Server]]:
    """A server and a standby that follows it; no commit is answered before both have it on disk."""
    primary = servers.Server(servers.folder()).make().start()
    standby = primary.standby(servers.folder())
    try:
        standby.start()
        asyncio.run(synchronise(primary))
        yield primary, standby
    finally:
        primary.end()
        standby.end()


async def synchronise(primary: servers.Server) -> None:
    """Let every commit wait for the standby, and wait for that."""
    with psycopg.connect(primary.url, autocommit=True) as db:
        db.execute("alter system set synchronous_standby_names = '*'")
        db.execute("select pg_reload_conf()")
        in_step = "select 1 from pg_stat_replication where sync_state = 'sync'"
        await until(lambda: db.execute(in_step).fetchall(), "the standby is waited for")


async def test_a_standby_that_takes_over_has_lost_and_repeats_nothing(
    pair: tuple[servers.Server, servers.Server], tmp_path: Path
) -> None:
    """Who was told that something is on disk finds it on the other server; nobody has to be started again for it."""
    primary, standby = pair
    site = PostgresSite(tmp_path, primary)
    both = f"127.0.0.1:{primary.port},127.0.0.1:{standby.port}"
    site.url = site.url.replace(f"127.0.0.1:{primary.port}", both) + "&target_session_attrs=read-write"
    oracle, draw = Oracle(), chance()
    witness = Witness(site, oracle)
    try:
        workers = [await site.worker() for _ in range(2)]
        async with site.client() as app:
            client = Client(app, site, oracle, draw, in_flight=IN_FLIGHT, is_patient=True)
            feeding = asyncio.create_task(client.feed())
            await until(lambda: all(site.owned_by(worker) for worker in workers), "both workers are at work")
            await site.until_more(10 * IN_FLIGHT)
            witness.look()
            acknowledged = len(oracle.read("start"))

            await site.fail_over(standby)

            witness.look()
            await site.until_more(10 * IN_FLIGHT)
            assert not feeding.done(), feeding.exception()
            assert all(worker.is_running() for worker in workers)
            client.is_closing = True
            await feeding
            await client.finish()
            await site.until_all_ended()
        assert [await worker.leave() for worker in workers] == [0, 0]
        witness.check()
        assert site.rows("select * from workers") == []
        print(f"{acknowledged} runs before the standby took over, {len(oracle.read('start'))} in the end")
    finally:
        site.end()
