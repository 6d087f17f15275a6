"""The contract of stores, on groups: they stand or fall together, whatever is in them."""

from perdure.stores.answers import Applied, Missing, Moved, Taken
from perdure.stores.operations import SupersedeRun
from perdure.stores.port import Store
from tests.test_store_contract import a_message, a_run, opened, store, write

__all__ = ["store"]


async def test_a_message_beside_a_start_that_is_refused_is_not_sent(store: Store) -> None:
    """A caller who is told Applied would wait for a run that was never started."""
    async with opened(store):
        await write(store, a_run("r1", "same"), a_run("r2"))
        assert isinstance(await write(store, a_run("r3", "same"), a_message("r2")), Taken)
        assert await store.unread("r2") == []


async def test_a_message_beside_an_id_that_is_not_given_up_is_not_sent(store: Store) -> None:
    async with opened(store):
        await write(store, a_run("r1"), a_run("r2"))
        assert await write(store, SupersedeRun("r1", None), a_message("r2")) == Moved()
        assert await store.unread("r2") == []


async def test_of_two_messages_in_a_group_none_is_sent_when_one_is_refused(store: Store) -> None:
    async with opened(store):
        await write(store, a_run("r1"))
        assert await write(store, a_message("nobody"), a_message("r1")) == Missing()
        assert await store.unread("r1") == []
        assert await write(store, a_message("r1")) != Applied()
