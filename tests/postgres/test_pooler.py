"""Behind a transaction pooler: no locks, nobody to listen, another connection for every transaction; all goes well."""

import asyncio
from collections.abc import Iterator

import pytest

from perdure import Perdure, Signal, activity, sleep, workflow
from tests.postgres.poolers import PROGRAM, Pooler
from tools import servers

number = Signal("number", int)


@activity
async def plus_one(value: int) -> int:
    return value + 1


@workflow
async def counts_on() -> int:
    value = await plus_one(await number.receive())
    await sleep(0.01)
    return await plus_one(value)


@pytest.fixture
def pooled_url(postgres: str, postgres_url: str) -> Iterator[str]:
    if PROGRAM is None:
        pytest.skip("pgbouncer is not installed")
    pooler = Pooler(postgres, servers.folder()).start()
    try:
        yield f"{pooler.url}?{postgres_url.partition('?')[2]}"
    finally:
        pooler.end()


async def test_workers_and_clients_share_a_few_connections(pooled_url: str) -> None:
    """Twelve connections of three processes on four of the server's."""
    async with (
        Perdure(pooled_url) as one,
        Perdure(pooled_url, namespace="other") as other,
        Perdure(pooled_url, worker=False) as client,
    ):
        assert one._store.address.is_pooled  # type: ignore[attr-defined]  # it is on Postgres
        runs = [await client.start(counts_on) for _ in range(20)]
        runs += [await other.start(counts_on) for _ in range(20)]
        for value, run in enumerate(runs):
            await run.signal(number, value)
        assert await asyncio.gather(*runs) == [value + 2 for value in range(40)]


async def test_the_runs_of_a_dead_worker_are_taken_over_when_its_lease_is_over(pooled_url: str) -> None:
    """Nobody can hold a lock there that would tell earlier."""
    dead = Perdure(pooled_url, lease=1)
    await dead.__aenter__()
    run = await dead.start(counts_on)
    assert dead._worker is not None
    dead._worker.abandon()
    dead._engine.abandon()  # type: ignore[union-attr]  # it is open
    dead._engine.recovery.cancel()  # type: ignore[union-attr]  # as above
    dead._store.abandon()  # type: ignore[attr-defined]  # it is on Postgres
    async with Perdure(pooled_url, lease=1) as heir:
        found = await heir.get(run_id=run.run_id)
        await found.signal(number, 1)
        assert await found.result(timeout=60) == 3
