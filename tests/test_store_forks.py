"""The store contract, retries and forks: a run gets the past of another one, inside the database."""

import pytest

from perdure.kernel.forking import Kept
from perdure.stores.answers import APPLIED, Applied, Missing, Taken
from perdure.stores.operations import ForkRun, MoveMessages, Operation, SupersedeRun, TakeMessage
from perdure.stores.port import Store
from tests.simulation.memory import Blocked
from tests.test_interleaving import World, answer, until
from tests.test_store_contract import (
    WORKER,
    a_message,
    a_ripe_run,
    a_run,
    an_end,
    an_event,
    answers,
    opened,
    store,
    write,
)

__all__ = ["store"]


def a_fork(run_id: str, from_run_id: str, *kept: Kept, kind: str = "retry") -> ForkRun:
    return ForkRun(run_id, "main", from_run_id, kind, 3, "why", None, 900, 800, None, None, kept, ())


def a_retry(run_id: str, from_run_id: str, *kept: Kept) -> list[Operation]:
    """A run under the same id, with the past of another one."""
    retried = a_ripe_run(run_id)._replace(workflow_id=from_run_id)
    return [SupersedeRun(from_run_id, None), retried, a_fork(run_id, from_run_id, *kept)]


ENDED: list[Operation] = [an_event("r1", 2), an_event("r1", 3), an_event("r1", 4), an_end("r1", 5)]


async def test_a_fork_has_the_events_that_are_kept_without_a_gap(store: Store) -> None:
    async with opened(store):
        await write(store, a_run("r1"), an_event("r1", 2, "1" * 2000), an_event("r1", 3), an_event("r1", 4, "2" * 2000))
        await write(store, an_end("r1", 5))
        assert await write(store, *a_retry("r2", "r1", Kept(2, 2, 0), Kept(4, 4, 1))) == APPLIED

        old, new = await store.reads.run("main", "r1"), await store.reads.latest_run("main", "r1")
        assert old is not None
        assert new is not None
        before, after = await store.reads.events(old, 0, 9), await store.reads.events(new, 0, 9)
        assert [(event.seq, event.place) for event in after] == [(1, ""), (2, "step#2"), (3, "step#4")]
        assert [event.fact for event in after[1:]] == [before[1].fact, before[3].fact]
        assert after[0].at == 800
        assert (new.forked_from, new.forked_at, new.fork_kind, new.fork_reason) == ("r1", 3, "retry", "why")
        assert (old.forked_to, old.status, len(before)) == ("r2", "COMPLETED", 5)


async def test_messages_that_became_no_event_of_it_are_unread_in_a_fork(store: Store) -> None:
    """In their order and under their ids; the others are known to have been taken."""
    async with opened(store):
        await write(store, a_run("r1"))
        numbers = []
        for name in ("signal:a", "signal:b", "signal:c"):
            posted = await write(store, a_message("r1", name))
            assert isinstance(posted, Applied)
            numbers.append(posted.value.number)  # type: ignore[attr-defined]  # Posted
        await write(store, an_event("r1", 2), TakeMessage(numbers[0], 2))
        await write(store, an_event("r1", 3), TakeMessage(numbers[1], 3))
        await write(store, an_end("r1", 4))
        await write(store, *a_retry("r2", "r1", Kept(2, 2, 0)))

        assert [message.message_id for message in await store.reads.unread("r2")] == ["signal:b", "signal:c"]
        assert [message.message_id for message in await store.reads.unread("r1")] == ["signal:c"]
        new = await store.reads.run("main", "r2")
        assert new is not None
        assert new.messages == 3
        # The same once more counts once, taken or not.
        for name in ("signal:a", "signal:b"):
            again = await write(store, a_message("r2", name))
            assert isinstance(again, Applied)
            assert again.value.count is None  # type: ignore[attr-defined]  # Posted


CONTINUED: list[Operation] = [
    SupersedeRun("r1", WORKER),
    a_run("next", "r1"),
    MoveMessages("r1", "next"),
    an_end("r1", 2)._replace(status="CONTINUED"),
]


async def test_a_fork_beside_the_continuation_of_its_run_has_what_was_sent_to_it(store: Store) -> None:
    """Both in one transaction, and the continuation first: the messages are with the next run, and in the fork."""
    async with opened(store):
        await write(store, a_run("r1"), a_message("r1", "signal:a"))
        forked: list[Operation] = [a_ripe_run("r2"), a_fork("r2", "r1", kind="fork")]
        assert await answers(store, CONTINUED, forked) == [APPLIED, APPLIED]

        for run_id in ("next", "r2"):
            assert [message.message_id for message in await store.reads.unread(run_id)] == ["signal:a"]


async def test_a_run_that_has_continued_is_not_forked(store: Store) -> None:
    """What was sent to it has gone on, and a fork of it would lack that."""
    async with opened(store):
        await write(store, a_run("r1"), a_message("r1", "signal:a"))
        await write(store, *CONTINUED)

        assert await write(store, a_ripe_run("r2"), a_fork("r2", "r1", kind="fork")) == Missing()
        assert await store.reads.run("main", "r2") is None


async def test_a_fork_that_is_written_again_is_there_once(store: Store) -> None:
    """Its answer was lost, and whether it was written is not known."""
    async with opened(store):
        await write(store, a_run("r1"), *ENDED)
        for _ in range(2):
            assert await write(store, *a_retry("r2", "r1", Kept(2, 3, 0))) == APPLIED

        new = await store.reads.run("main", "r2")
        assert new is not None
        assert len(await store.reads.events(new, 0, 9)) == 3


async def test_the_second_of_two_retries_is_told_of_the_first(store: Store) -> None:
    """And leaves nothing: neither a run nor a word in the row of the old one."""
    async with opened(store):
        await write(store, a_run("r1"), *ENDED)
        await write(store, *a_retry("r2", "r1", Kept(2, 3, 0)))

        second = await write(store, *a_retry("r3", "r1", Kept(2, 3, 0)))

        assert isinstance(second, Taken)
        assert second.run.run_id == "r2"
        assert await store.reads.run("main", "r3") is None
        old = await store.reads.run("main", "r1")
        assert old is not None
        assert old.forked_to == "r2"


async def test_there_is_no_fork_of_a_run_that_is_gone(store: Store) -> None:
    async with opened(store):
        assert await write(store, a_ripe_run("r2"), a_fork("r2", "r1")) == Missing()
        assert await store.reads.run("main", "r2") is None


# Transactions that overlap


@pytest.mark.parametrize("statement", ["supersede_run", "insert_runs", "copy_events"])
def test_two_retries_that_overlap_make_one_run(statement: str) -> None:
    """Wherever the first one is when the second begins: that one waits for it, and is told."""
    world = World(a_run("r1"), *ENDED)
    first = world.by(None, *a_retry("r2", "r1", Kept(2, 3, 0)))
    until(first, statement)
    second = world.by(None, *a_retry("r3", "r1", Kept(2, 3, 0)))
    assert isinstance(second.run(), Blocked)
    assert answer(first) == APPLIED
    told = answer(second)
    assert isinstance(told, Taken)
    assert told.run.run_id == "r2"


def test_a_fork_of_a_run_whose_owner_appends_meanwhile_has_its_beginning() -> None:
    """What was read is still so, whatever comes after it."""
    world = World(a_run("r1"), an_event("r1", 2), a_message("r1", "signal:a"))
    owner = world.by(WORKER, an_event("r1", 3), TakeMessage(1, 3))
    until(owner, "append_events")
    fork = world.by(None, a_ripe_run("r2"), a_fork("r2", "r1", Kept(2, 2, 0), kind="fork"))
    until(fork, "copy_messages")
    assert answer(owner) == APPLIED
    assert answer(fork) == APPLIED
    assert [event.seq for event in world.tables.events.by_run["r2"].values()] == [2]
    assert world.messages("r2") == ["signal:a"]
    assert world.messages("r1") == []
