"""The contract of stores, on order: what one batch does in which order, and times that never go back."""

from perdure.stores.answers import Applied, Closed, Posted
from perdure.stores.operations import CloseFreeRun, MoveMessages, NoteCancel, PostMessage, SupersedeRun
from perdure.stores.port import Store
from tests.test_store_contract import WORKER, a_message, a_park, a_run, an_end, an_event, answers, opened, store, write
from tests.test_store_families import a_rich_run

__all__ = ["store"]


async def test_a_cancel_written_after_a_continuation_in_one_batch_holds_for_the_successor(store: Store) -> None:
    """The message is handed on to the successor; so must be what its row says of it, and the end it sets."""
    async with opened(store):
        await write(store, a_run("before", "id"))
        await answers(
            store,
            [
                SupersedeRun("before", WORKER),
                a_rich_run("after", workflow_id="id", continued_from="before"),
                MoveMessages("before", "after"),
                an_end("before", 2, '{"run_id":"after"}')._replace(status="CONTINUED"),
            ],
            [
                PostMessage("before", "c-1", "CancelRequest", '{"reason":"enough","close_at":9000}', 1500),
                NoteCancel("before", "enough", 9000, 1500),
            ],
        )
        row = await store.run("main", "after")
        assert row is not None
        assert [message.message_id for message in await store.unread("after")] == ["c-1"]
        assert (row.cancel_requested_at, row.cancel_reason) == (1500, "enough")
        assert (row.close_at, row.close_as) == (9000, "CANCELLED")


async def test_a_free_run_is_not_closed_before_its_last_event(store: Store) -> None:
    """The clock of whoever closes it may be behind; the times of a history never go back."""
    async with opened(store):
        await write(store, a_run("r"), an_event("r", 2)._replace(at=5000))
        await write(store, a_park("r"))
        await write(store, CloseFreeRun("r", "main", "TERMINATED", "{}", 3000, only_unbegun=False))
        row = await store.run("main", "r")
        assert row is not None
        assert row.closed_at == row.updated_at == 5000


async def test_a_message_after_the_end_of_its_run_in_one_batch_finds_it_closed(store: Store) -> None:
    """Whoever sends it would be told that it arrived, and nobody would ever read it."""
    async with opened(store):
        await write(store, a_run("r"))
        await write(store, a_run("s"))
        told = await answers(
            store, [a_message("r", "before")], [an_end("r", 2)], [a_message("r", "after")], [a_message("s", "other")]
        )
        assert told[0] == Applied(Posted(1, 1))
        assert told[2] == Closed("COMPLETED")
        assert isinstance(told[3], Applied)
        assert [message.message_id for message in await store.unread("r")] == ["before"]
