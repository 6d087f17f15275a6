"""Every order in which writers commit and a subscriber looks: the last state of every run is always told."""

import asyncio
from collections.abc import Iterator
from itertools import permutations

import pytest

from perdure.engine.background import Background
from perdure.engine.committer import Committer
from perdure.engine.subscriptions import subscriptions
from perdure.engine.subscriptions.subscriptions import StoreSubscriptions
from perdure.kernel.filters import parse
from perdure.kernel.position import Position
from perdure.stores.operations import Batch, InsertRun, NoteWaiting
from perdure.testing import VirtualClock
from tests.simulation.memory import MemoryStore, Tables, Transaction

WAITS = '[{"kind":"timer","place":"t"}]'


def a_start(run_id: str) -> InsertRun:
    return InsertRun(run_id, "main", run_id, "wf", "q", "RUNNING", "w", None, 0, "{}", 7, 1)


class Order:
    """One order: what is done at each moment; a letter for a step of each writer, `s` for the subscriber."""

    def __init__(self, moments: str) -> None:
        self.moments = moments
        self.tables = Tables()
        self.store = MemoryStore(self.tables)
        self.clock = VirtualClock()
        background = Background(self.clock)
        self.subscriptions = StoreSubscriptions(self.store, Committer(self.store, self.clock), self.clock, background)
        self.told: dict[str, str | None] = {}

    async def missed(self) -> set[str]:
        """The runs whose last state was not told in the end."""
        self.store.transaction(Batch([[a_start("old")]], None, 0)).run()
        writers = {
            "a": self.writer([a_start("new")]),
            "b": self.writer([NoteWaiting("old", "w", WAITS, 2)]),
        }
        following: asyncio.Task[None] | None = None
        for moment in self.moments:
            if moment == "s":
                following = asyncio.ensure_future(self.follow())
            elif writers[moment].is_open:
                writers[moment].step()
            await self.look()
        for writer in writers.values():
            if writer.is_open:
                writer.run()
        await self.look()
        await self.look()
        assert following is not None
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
        runs = self.tables.runs.rows
        return {run_id for run_id in runs if self.told.get(run_id, "never") != runs[run_id].waiting}

    def writer(self, group: list[InsertRun | NoteWaiting]) -> Transaction:
        return self.store.transaction(Batch([group], None, 0))

    async def look(self) -> None:
        for _ in range(30):
            await asyncio.sleep(0)
        await self.subscriptions.look()
        for _ in range(30):
            await asyncio.sleep(0)

    async def follow(self) -> None:
        async for row, _, _ in self.subscriptions.changes("main", parse("true", now=1), None):
            self.told[row.run_id] = row.waiting


def orders() -> Iterator[str]:
    yield from sorted({"".join(each) for each in permutations("aaaabbbs")})


async def missing() -> dict[str, set[str]]:
    """The orders in which something was missed."""
    found = {}
    for moments in orders():
        if missed := await Order(moments).missed():
            found[moments] = missed
    return found


async def test_no_order_of_commits_and_looks_loses_a_change() -> None:
    assert await missing() == {}


async def test_a_subscriber_that_misses_a_late_commit_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if a position were a number: what was open then, and commits later, lies before it."""
    monkeypatch.setattr(Tables, "position", lambda self: Position(self.last_transaction + 1))
    assert await missing() != {}


async def test_a_subscriber_that_trusts_a_log_which_has_just_begun_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was under way when it began to listen is in no log."""
    monkeypatch.setattr(subscriptions.StoreSubscriptions, "_listed_again", lambda *_: [])
    assert await missing() != {}
