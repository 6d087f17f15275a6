"""The contract of stores, on order: what a batch does in which order, who comes first, times that never go back."""

import random

import pytest

from perdure.stores.answers import Applied, Closed, Posted
from perdure.stores.operations import CloseFreeRun, MoveMessages, NoteCancel, PostMessage, SupersedeRun
from perdure.stores.port import Store
from perdure.stores.rules.claims import MOST_LEVELS
from tests.test_store_contract import (
    WORKER,
    a_claim,
    a_message,
    a_park,
    a_ripe_run,
    a_run,
    an_end,
    an_event,
    answers,
    opened,
    store,
    write,
)
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
        row = await store.reads.run("main", "after")
        assert row is not None
        assert [message.message_id for message in await store.reads.unread("after")] == ["c-1"]
        assert (row.cancel_requested_at, row.cancel_reason) == (1500, "enough")
        assert (row.close_at, row.close_as) == (9000, "CANCELLED")


async def test_a_free_run_is_not_closed_before_its_last_event(store: Store) -> None:
    """The clock of whoever closes it may be behind; the times of a history never go back."""
    async with opened(store):
        await write(store, a_run("r"), an_event("r", 2)._replace(at=5000))
        await write(store, a_park("r"))
        await write(store, CloseFreeRun("r", "main", "TERMINATED", "{}", 3000, only_unbegun=False))
        row = await store.reads.run("main", "r")
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
        assert [message.message_id for message in await store.reads.unread("r")] == ["before"]


async def claimed(store: Store, limit: int, queues: tuple[str, ...] = ("default",)) -> list[str]:
    answer = await write(store, a_claim(limit, queues))
    assert isinstance(answer, Applied)
    assert isinstance(answer.value, list)
    return sorted(answer.value)


@pytest.mark.parametrize("levels", [MOST_LEVELS - 1, MOST_LEVELS, MOST_LEVELS + 1, 5 * MOST_LEVELS])
async def test_however_many_priorities_there_are_the_highest_come_first(store: Store, levels: int) -> None:
    """Beyond some of them they are not looked at one by one any more."""
    async with opened(store):
        numbers = random.Random(levels).sample(range(levels), levels)
        runs = [a_ripe_run(f"{number:03}{letter}", priority=number) for number in numbers for letter in "ab"]
        await answers(store, *[[run] for run in runs])
        taken = []
        while found := await claimed(store, 7):
            taken.append(found)
        urgent_first = [f"{number:03}{letter}" for number in reversed(range(levels)) for letter in "ab"]
        assert taken == [sorted(urgent_first[first : first + 7]) for first in range(0, 2 * levels, 7)]


async def test_runs_that_were_due_in_the_meantime_come_in_the_order_of_their_times(store: Store) -> None:
    """After an hour in which nobody worked, whoever has waited longest is the first."""
    async with opened(store):
        times = {"a": 4000, "b": 2000, "c": 5000, "d": 3000}
        for run_id, wake_at in times.items():
            await write(store, a_run(run_id))
            await write(store, a_park(run_id, wake_at=wake_at))
        claim = a_claim(1)._replace(now=9000)
        assert [await write(store, claim) for _ in times] == [Applied([run_id]) for run_id in "bdac"]


async def test_what_is_ripe_is_found_below_however_many_priorities_that_sleep(store: Store) -> None:
    """Whoever looks at the highest ones only would never see it."""
    async with opened(store):
        asleep = [a_ripe_run(f"{n:03}", priority=n)._replace(wake_at=9000 + n) for n in range(5 * MOST_LEVELS)]
        await answers(store, *[[run] for run in asleep])
        assert await store.reads.next_wake("main", ("default",), ("wf",)) == 9000
        assert await claimed(store, 5) == []
        await write(store, a_ripe_run("low", priority=-7), a_ripe_run("lower", priority=-8))
        assert await claimed(store, 1) == ["low"]
        assert await claimed(store, 5) == ["lower"]


async def test_a_queue_with_many_priorities_leaves_another_its_share(store: Store) -> None:
    async with opened(store):
        many = [a_ripe_run(f"{number:03}", priority=number, queue="many") for number in range(5 * MOST_LEVELS)]
        await answers(store, *[[run] for run in many])
        await write(store, *(a_ripe_run(f"few-{number}", priority=-1) for number in range(5)))
        taken = [await claimed(store, 2 * MOST_LEVELS, ("many", "default")) for _ in range(4)]
        assert {"few-0", "few-1", "few-2", "few-3", "few-4"} <= {*taken[0], *taken[1], *taken[2], *taken[3]}
        assert len({run_id for found in taken for run_id in found}) == 5 * MOST_LEVELS + 5
