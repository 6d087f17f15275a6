"""The contract of stores, on groups: they stand or fall together, whatever is in them."""

from perdure.stores.answers import Applied, Missing, Moved, Taken
from perdure.stores.operations import NoteWaiting, SupersedeRun
from perdure.stores.port import Store
from perdure.stores.records import RunFilter, RunRow
from tests.test_store_contract import WORKER, a_claim, a_message, a_park, a_run, answers, opened, store, write

__all__ = ["store"]


async def test_a_message_beside_a_start_that_is_refused_is_not_sent(store: Store) -> None:
    """A caller who is told Applied would wait for a run that was never started."""
    async with opened(store):
        await write(store, a_run("r1", "same"), a_run("r2"))
        assert isinstance(await write(store, a_run("r3", "same"), a_message("r2")), Taken)
        assert await store.reads.unread("r2") == []


async def test_a_message_beside_an_id_that_is_not_given_up_is_not_sent(store: Store) -> None:
    async with opened(store):
        await write(store, a_run("r1"), a_run("r2"))
        assert await write(store, SupersedeRun("r1", None), a_message("r2")) == Moved()
        assert await store.reads.unread("r2") == []


async def test_of_two_messages_in_a_group_none_is_sent_when_one_is_refused(store: Store) -> None:
    async with opened(store):
        await write(store, a_run("r1"))
        assert await write(store, a_message("nobody"), a_message("r1")) == Missing()
        assert await store.reads.unread("r1") == []
        assert await write(store, a_message("r1")) != Applied()


async def test_one_park_that_is_refused_harms_no_other(store: Store) -> None:
    """A thousand runs are parked in one batch; a message came for one of them."""
    async with opened(store):
        runs = [f"r{number}" for number in range(20)]
        await write(store, *[a_run(run_id) for run_id in runs])
        await write(store, a_message("r7"))
        told = await answers(store, *[[a_park(run_id)] for run_id in runs])
        assert [run_id for run_id, answer in zip(runs, told, strict=True) if answer != Applied()] == ["r7"]
        rows = await store.reads.list_runs(RunFilter("main"))
        owned = [row.run_id for row in rows if isinstance(row, RunRow) and row.owner]
        assert owned == ["r7"]


async def test_what_is_said_of_one_run_in_a_batch_keeps_its_order(store: Store) -> None:
    """What goes together for many runs must not turn one run's own words around."""
    async with opened(store):
        await write(store, a_run("r1"), a_run("r2"))
        noted = NoteWaiting("r1", WORKER, '["first"]', 1500)
        told = await answers(
            store, [noted], [a_park("r2")], [noted._replace(waiting='["last"]')], [a_park("r1")], [noted], [a_claim()]
        )
        assert told == [Applied(), Applied(), Applied(), Applied(), Moved(), Applied([])]
        row = await store.reads.run("main", "r1")
        assert row is not None
        assert (row.status, row.owner, row.waiting) == ("SUSPENDED", None, "[]")
