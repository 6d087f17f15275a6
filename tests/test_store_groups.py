"""The contract of stores, on groups: they stand or fall together, whatever is in them."""

from perdure.kernel.messages import CancelRequest, TerminateRequest
from perdure.stores.answers import Applied, Missing, Moved, Stale, Taken
from perdure.stores.operations import (
    ClaimRuns,
    ExpectDeadline,
    ExpectOwner,
    Fence,
    ForgetDeadline,
    NoteDeadline,
    NoteWaiting,
    RaiseEpoch,
    RegisterWorker,
    RenewWorker,
    ShortenLease,
    SupersedeRun,
)
from perdure.stores.port import Store
from perdure.stores.records import DeadlineRow, RunFilter, RunRow
from tests.test_store_contract import (
    WORKER,
    a_claim,
    a_message,
    a_park,
    a_run,
    an_end,
    an_event,
    answers,
    opened,
    store,
    write,
)

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


# Groups of workers other than that of the batch


def a_worker(worker_id: str) -> RegisterWorker:
    return RegisterWorker(worker_id, "main", 11_000, ("default",), "node", 0, 1000, 10_000, ("wf",), is_remote=True)


async def test_a_stale_workers_groups_are_refused_and_its_neighbours_are_written(store: Store) -> None:
    """One process writes for many workers: whoever lost its lease must not take the others with it."""
    async with opened(store):
        for number in (2, 3):
            await write(store, a_worker(f"w-{number}"), a_run(f"r{number}", owner=f"w-{number}"))
        await write(store, a_run("r1"), RaiseEpoch("w-2", 1))

        told = await answers(
            store,
            [an_event("r1", 2)],
            [Fence("w-3", 1), ExpectOwner("r3", "w-3", 1), an_event("r3", 2)],
            [Fence("w-2", 1), ExpectOwner("r2", "w-2", 1), an_event("r2", 2)],
            [Fence("w-2", 2), ExpectOwner("r2", "w-2", 1), an_event("r2", 2, "7")],
            [Fence("nobody", 1), an_event("r2", 3)],
            [Fence("w-3", 1), an_event("r3", 3)],
        )

        assert told == [Applied(), Applied(), Stale(), Applied(), Stale(), Applied()]
        last = [await store.reads.last_event(f"r{number}") for number in (1, 2, 3)]
        assert last == [(2, 1002), (2, 1002), (3, 1003)]


async def test_a_group_expects_its_run_to_be_of_its_worker_and_without_later_events(store: Store) -> None:
    """A worker that has parked a run keeps its epoch, and may still not write to what is another one's by now."""
    async with opened(store):
        await write(store, a_worker("w-2"), a_run("r1"), a_run("r2", owner="w-2"), an_event("r2", 2))
        own, late = ExpectOwner("r2", "w-2", 2), ExpectOwner("r2", "w-2", 1)

        told = await answers(
            store,
            [Fence("w-2", 1), own, a_message("r1")],
            [Fence("w-2", 1), late, a_message("r2")],
            [Fence("w-2", 1), ExpectOwner("r1", "w-2"), an_event("r1", 2)],
            [Fence("w-2", 1), own, an_end("r2", 3)._replace(owner="w-2")],
        )

        assert [isinstance(each, Applied) for each in told] == [True, False, False, True]
        assert await write(store, Fence("w-2", 1), ExpectOwner("r2", "w-2"), an_event("r2", 4)) == Moved()
        assert await store.reads.unread("r2") == []


async def test_the_end_of_a_run_that_is_another_workers_by_now_is_refused_and_harms_no_signal(store: Store) -> None:
    """Who sends to a run in the same moment has nothing to do with a worker that is too late to end it."""
    async with opened(store):
        await write(store, a_worker("w-2"), a_worker("w-3"), a_run("r1", owner="w-3"), a_run("r2", owner="w-3"))
        await write(store, RaiseEpoch("w-2", 1))

        told = await answers(
            store,
            [Fence("w-2", 1), ExpectOwner("r1", "w-2", 1), an_end("r1", 2)._replace(owner="w-2")],
            [Fence("w-2", 2), ExpectOwner("r2", "w-2", 1), an_end("r2", 2)._replace(owner="w-2")],
            [a_message("r1")],
            [a_message("r2")],
        )

        assert told[:2] == [Stale(), Moved()]
        assert [type(each) for each in told[2:]] == [Applied, Applied]


async def test_a_claim_of_a_stale_worker_takes_nothing(store: Store) -> None:
    async with opened(store):
        await write(store, a_worker("w-2"), a_run("r1", status="PENDING", owner=None, wake_at=1000))
        claim = ClaimRuns("w-2", "main", ("default",), ("wf",), 1000, 10)
        told = await answers(store, [Fence("w-2", 2), claim], [Fence("w-2", 1), claim])
        assert told == [Stale(), Applied(["r1"])]


async def test_the_lease_of_a_remote_worker_grows_under_its_epoch_alone(store: Store) -> None:
    """Others see by the change that it lives, so a renewal changes it also when the clock went back."""
    async with opened(store):
        await write(store, a_worker("w-2"))
        told = [await write(store, RenewWorker("w-2", epoch, until)) for epoch, until in ((1, 15_000), (1, 3), (2, 9))]
        found = await store.reads.remote.worker("w-2")
        assert told == [Applied(), Applied(), Moved()]
        assert found is not None
        assert (found.lease_until, found.remote, found.lease_ms) == (15_001, 1, 10_000)
        assert await store.reads.remote.worker("nobody") is None


async def test_the_lease_of_a_remote_worker_is_shortened_unless_it_has_stirred(store: Store) -> None:
    """Its stream broke; what it did meanwhile, at whichever server, shows that it lives."""
    async with opened(store):
        await write(store, a_worker("w-2"))
        await write(store, RenewWorker("w-2", 1, 15_000))
        given = ((2, 15_000), (1, 14_000), (1, 15_000), (1, 15_000))
        told = [await write(store, ShortenLease("w-2", epoch, seen, 3_000)) for epoch, seen in given]
        assert told == [Moved(), Moved(), Applied(), Moved()]
        found = await store.reads.remote.worker("w-2")
        assert found is not None
        assert found.lease_until == 3_000


async def test_deadlines_of_attempts_are_found_when_they_are_due(store: Store) -> None:
    async with opened(store):
        first = NoteDeadline("r1", "main", "w-2", 1, 1000, 9000, None, 9000)
        second = NoteDeadline("r2", "main", "w-2", 1, 1000, 9000, 500, 1500)
        await answers(store, [first], [second])
        assert await store.reads.remote.next_due() == 1500
        assert await store.reads.remote.due(1500, 10) == [DeadlineRow(*second)]

        await answers(store, [second._replace(due_at=1900)], [ForgetDeadline("r1"), ForgetDeadline("nobody")])
        assert await store.reads.remote.due(20_000, 10) == [DeadlineRow(*second)._replace(due_at=1900)]
        assert await store.reads.remote.deadline("r1") is None


async def test_a_group_expects_its_attempt_to_be_under_way_as_it_was_read(store: Store) -> None:
    """Between reading and writing another attempt may have begun, or this one have shown that it lives."""
    async with opened(store):
        begun = NoteDeadline("r1", "main", "w-2", 2, 1000, 9000, 500, 1500)
        await write(store, a_worker("w-2"), a_run("r1", owner="w-2"), begun)
        right = [ExpectDeadline("r1", "w-2", 2, None), ExpectDeadline("r1", "w-2", 2, 1500)]
        wrong = [
            ExpectDeadline("r1", "w-2", 1, None),
            ExpectDeadline("r1", "w-3", 2, None),
            ExpectDeadline("r1", "w-2", 2, 1400),
            ExpectDeadline("r2", "w-2", 2, None),
        ]

        for each in wrong:
            assert await write(store, each, an_event("r1", 2)) == Moved()
        assert await write(store, *right, an_event("r1", 2)) == Applied()
        assert (await store.reads.last_event("r1")) == (2, 1002)
        assert await write(store, right[1], ForgetDeadline("r1")) == Applied()
        assert await write(store, right[1], ForgetDeadline("r1")) == Moved()


async def test_what_a_worker_has_and_what_of_it_is_to_stop_is_known(store: Store) -> None:
    async with opened(store):
        task = a_run("r3", owner="w-2")._replace(workflow="task:pack")
        await write(store, a_worker("w-2"), a_run("r1", owner="w-2"), a_run("r2"), task, a_run("r4", owner="w-2"))
        stops = (("r3", "CancelRequest"), ("r1", "TerminateRequest"), ("r2", "CancelRequest"), ("r4", "CancelRequest"))
        for run_id, kind in stops:
            await write(store, a_message(run_id)._replace(kind=kind, body='{"reason":"x"}'))
        await write(store, a_message("r1", "m-2"))
        await write(store, an_end("r4", 2)._replace(owner="w-2"))

        assert await store.reads.remote.owned("w-2") == {"r1": "wf", "r3": "task:pack"}
        found = await store.reads.remote.stops("w-2")
        assert [(run_id, type(each.body)) for run_id, each in found] == [
            ("r3", CancelRequest),
            ("r1", TerminateRequest),
        ]
