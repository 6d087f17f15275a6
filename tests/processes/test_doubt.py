"""A commit whose outcome nobody knows: the worker takes a new epoch and reads its runs again."""

import asyncio
import logging
from typing import Any

import pytest

from perdure import Perdure, activity, workflow
from perdure.errors import StoreUnavailable
from perdure.stores.answers import Committed, Outcome, Unknown
from tests.processes.sites import Site

executed: list[tuple[str, int]] = []
has_begun = asyncio.Event()


@activity
async def haste(key: str, number: int) -> int:
    executed.append((key, number))
    if (key, number) == ("late", 1):
        has_begun.set()
    await asyncio.sleep(0)
    return number


@workflow
async def hasty(key: str) -> list[int]:
    return [await haste(key, number) for number in range(5)]


async def test_a_run_started_while_others_are_read_again_is_not_brought_to_life_twice(
    site: Site, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """What is started under the new epoch lives already; read as one of those to bring back, it did its steps twice."""
    async with Perdure(site.url, workflows=[hasty]) as app:
        store: Any = app._store
        finish, owned_runs, load_runs = store.transactions.finish, store.reads.owned_runs, store.reads.load_runs
        late: list[asyncio.Task[Any]] = []

        def lose_the_answer(committed: Committed) -> Outcome:
            monkeypatch.setattr(store.transactions, "finish", finish)
            finish(committed)
            return Unknown(StoreUnavailable(site.url, "the answer is lost"))

        async def list_late(worker_id: str) -> Any:
            late.append(asyncio.create_task(app.run(hasty.options(id="late"), "late")))
            # Where nothing is written before this list is made, there is nothing to wait for.
            await asyncio.wait({asyncio.create_task(has_begun.wait())}, timeout=0.3)
            return await owned_runs(worker_id)

        async def load_late(*args: Any) -> Any:
            found = await load_runs(*args)
            await asyncio.wait(set(late), timeout=0.3)
            return found

        monkeypatch.setattr(store.transactions, "finish", lose_the_answer)
        monkeypatch.setattr(store.reads, "owned_runs", list_late)
        monkeypatch.setattr(store.reads, "load_runs", load_late)

        await app.run(hasty.options(id="early"), "early")
        await late[0]

    assert sorted(set(executed)) == sorted(executed)
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR] == []
    site.check()


async def test_a_client_whose_disk_fails_is_told(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has no epoch to ask for, and wrote the same again and again, as fast as it could, without an answer."""
    async with site.client() as app:
        store: Any = app._store
        finish = store.transactions.finish

        def fail(committed: Committed) -> Outcome:
            store.transactions.roll_back()
            return Unknown(StoreUnavailable(site.url, "the disk fails"))

        monkeypatch.setattr(store.transactions, "finish", fail)
        for _ in range(3):
            with pytest.raises(StoreUnavailable, match="the disk fails"):
                await asyncio.wait_for(app.start(hasty.options(id="told"), "told"), timeout=60)

        monkeypatch.setattr(store.transactions, "finish", finish)
        assert (await asyncio.wait_for(app.start(hasty.options(id="told"), "told"), timeout=60)).id == "told"
