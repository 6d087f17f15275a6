"""A database that cannot be written: whoever reads the log is told, and not buried."""

import logging
import sqlite3

import pytest

from perdure import StoreUnavailable, activity, workflow
from perdure.engine.outages import Outage
from perdure.testing import Environment, VirtualClock

LARGE = "x" * 100_000


@activity
async def swell() -> str:
    return LARGE


@workflow
async def swells() -> int:
    return len(await swell())


def told(caplog: pytest.LogCaptureFixture, event: str) -> list[str]:
    found = [record for record in caplog.records if getattr(record, "event", None) == event]
    assert all(record.levelno == logging.WARNING for record in found)
    return [record.getMessage() for record in found]


def let_it_grow(env: Environment, *, pages: int) -> None:
    """As if the disk had room for so many more pages."""
    db: sqlite3.Connection = env.store.inner.transactions.db
    (size,) = db.execute("pragma page_count").fetchone()
    db.execute(f"pragma max_page_count = {size + pages}")


async def test_a_full_disk_is_told_at_once_then_rarely_and_once_when_it_is_over(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A line every two seconds, all night, hides whatever else there is to read."""
    async with Environment() as env:
        let_it_grow(env, pages=4)
        run = await env.start(swells)
        await env.settle()
        (first,) = told(caplog, "store_unavailable")
        assert first.startswith("the database is unavailable: ")
        assert "full" in first
        for _ in range(600):
            await env.pass_time(2)
        lines = told(caplog, "store_unavailable")
        assert 3 <= len(lines) <= 6
        assert "unavailable, for 15 min by now: " in lines[-1]
        with pytest.raises(StoreUnavailable):
            await env.alive(env.start(swells))
        assert len(told(caplog, "store_unavailable")) == len(lines)
        assert told(caplog, "store_unavailable_over") == []

        let_it_grow(env, pages=10_000)

        assert await env.result(run) == len(LARGE)
        (over,) = told(caplog, "store_unavailable_over")
        assert over.startswith("the database can be written again, after 20")


async def test_a_new_outage_is_told_at_once(caplog: pytest.LogCaptureFixture) -> None:
    """The one before is over; this one is news."""
    async with Environment() as env:
        for count in (1, 2):
            let_it_grow(env, pages=4)
            run = await env.start(swells)
            await env.settle()
            assert len(told(caplog, "store_unavailable")) == count
            let_it_grow(env, pages=10_000)
            assert await env.result(run) == len(LARGE)
            assert len(told(caplog, "store_unavailable_over")) == count


async def test_a_worker_that_gets_no_new_epoch_does_not_say_so_twice_a_second(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It tries that often, and one line says it."""
    async with Environment() as env:
        env.store.is_broken = True
        with pytest.raises(StoreUnavailable):
            await env.alive(env.start(swells))
        for _ in range(60):
            await env.pass_time(0.5)
        assert len(told(caplog, "recovery_failed")) == 1
        env.store.is_broken = False
        await env.pass_time(1)
        assert len(told(caplog, "recovery_failed_over")) == 1


def test_a_server_that_goes_down_is_told_in_one_line(caplog: pytest.LogCaptureFixture) -> None:
    """It says farewell, and refuses connections a moment later; what is new after a second is told again."""
    clock = VirtualClock()
    outage = Outage(clock, "watch_failed", "watching failed", "watching works")
    outage.fails(StoreUnavailable("db", "terminating connection"))
    for _ in range(15):
        clock.advance(100)
        outage.fails(StoreUnavailable("db", "nobody listens there"))
    outage.is_over()

    assert [record.getMessage() for record in caplog.records] == [
        "watching failed: db: terminating connection",
        "watching failed, for 1 s by now: db: nobody listens there",
        "watching works, after 1.5 s",
    ]
