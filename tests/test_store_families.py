"""The contract of stores, further: parents and children, successors, ends from outside and by the clock."""

import json

import msgspec
import pytest

from perdure.kernel.filters import parse
from perdure.kernel.messages import CancelRequest, ChildResult, TerminateRequest
from perdure.kernel.outbox import types_of
from perdure.stores import rows
from perdure.stores.answers import (
    Answer,
    Applied,
    Blamed,
    Closed,
    Freed,
    Missing,
    Moved,
    Paused,
    Posted,
    StoppedChild,
    Taken,
)
from perdure.stores.operations import (
    Annotate,
    ClaimRuns,
    CloseFreeRun,
    FreeRuns,
    HoldRun,
    InsertRichRun,
    InsertSink,
    MoveMessages,
    NoteCancel,
    NoteUndo,
    RaiseEpoch,
    RegisterWorker,
    SetAttributes,
    StopChildren,
    SupersedeRun,
    TakeMessage,
    TellRun,
)
from perdure.stores.port import Store
from perdure.stores.records import LoadedRun, RunFilter, RunQuery, RunRow
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

__all__ = ["store"]


# What a row says of something that is to be undone, and of something that is.
WAITING, DONE = '[{"name":"f","state":"waiting"}]', '[{"name":"f","state":"done"}]'


def a_rich_run(run_id: str, **changes: object) -> InsertRichRun:
    rich = InsertRichRun(*a_ripe_run(run_id), None, None, "cancel", None, None, None, None, None, None, None)
    return rich._replace(**changes)  # type: ignore[arg-type]  # a test's shorthand


def a_live_run(run_id: str, **changes: object) -> InsertRichRun:
    return a_rich_run(run_id, owner=WORKER, status="RUNNING", wake_at=None, **changes)


def a_child(run_id: str, parent: str = "p", **changes: object) -> InsertRichRun:
    return a_rich_run(run_id, parent_id=parent, parent_place=f"place of {run_id}", **changes)


def a_live_child(run_id: str, parent: str = "p", **changes: object) -> InsertRichRun:
    return a_child(run_id, parent, **changes)._replace(owner=WORKER, status="RUNNING", wake_at=None)


def a_close(run_id: str, *, only_unbegun: bool = False) -> CloseFreeRun:
    return CloseFreeRun(run_id, "main", "TERMINATED", '{"reason":"enough"}', 3000, only_unbegun)


def a_stop(run_id: str, *, all_terminate: bool = False, place: str | None = None) -> StopChildren:
    cancel, terminate = rows.message_body(CancelRequest("over")), rows.message_body(TerminateRequest("over"))
    return StopChildren(run_id, f"parent:{run_id}", cancel, terminate, all_terminate, "over", 3000, place)


async def row_of(store: Store, run_id: str) -> RunRow:
    row = await store.reads.run("main", run_id)
    assert row is not None
    return row


async def test_a_rich_run_keeps_its_traits(store: Store) -> None:
    async with opened(store):
        given = a_rich_run("r", entity_id="e", correlation_id="c", attributes='{"a":1}', timeout_ms=5, close_at=1005)
        await write(
            store, given._replace(parent_id="p", parent_place="x", continued_from="q", input='"' + "x" * 2000 + '"')
        )
        row = await row_of(store, "r")
        traits = rows.traits_of(row)
        assert (traits.entity_id, traits.correlation_id, traits.attributes) == ("e", "c", '{"a":1}')
        assert (traits.parent_id, traits.parent_place, traits.continued_from) == ("p", "x", "q")
        assert (row.close_at, row.close_as, len(row.input)) == (1005, "TIMED_OUT", 2002)
        assert [found.run_id for found in await store.reads.list_runs(RunFilter("main", parent_id="p"))] == ["r"]


@pytest.mark.parametrize("given", ['{"a":1,"b":"x","c":true}', '{"a":1,"b":[1.5,"x"]}'])
async def test_a_start_that_is_repeated_is_found_by_its_attributes_once(store: Store, given: str) -> None:
    async with opened(store):
        run, other = a_rich_run("r", attributes=given), a_rich_run("other", attributes=given)
        await write(store, run)
        assert await answers(store, [run], [other], [other]) == [Applied()] * 3
        for where in ("a = 1", "b is not null"):
            assert await store.reads.matching.count(RunQuery("main", parse(where, now=0))) == {None: 2}


async def test_a_free_run_is_closed_by_whoever_asks_and_an_owned_one_is_not(store: Store) -> None:
    async with opened(store):
        await write(store, a_ripe_run("free"))
        await write(store, a_run("owned"))
        assert await answers(store, [a_close("free")], [a_close("owned")], [a_close("free")]) == [
            Applied(),
            Moved(),
            Moved(),
        ]
        closed, owned = await row_of(store, "free"), await row_of(store, "owned")
        assert (closed.status, closed.closed_at, closed.last_seq, closed.wake_at) == ("TERMINATED", 3000, 2, None)
        assert (owned.status, owned.closed_at) == ("RUNNING", None)
        closing = rows.closing_event(closed)
        assert closing is not None
        assert rows.body_of(closing.fact) == '{"reason":"enough"}'
        assert await write(store, a_message("free")) == Closed("TERMINATED")


async def test_a_child_that_is_stopped_in_the_batch_that_starts_it_is_told_in_order(store: Store) -> None:
    """Its end is no operation of its own, and must not come to sinks before its start."""
    async with opened(store):
        await write(store, a_run("p"))
        await write(store, InsertSink("s1", "main", "s1", types_of(("run.*",)), None, 9, "{}"))
        await answers(store, [a_child("c1")], [a_stop("p")], [a_child("c2", "other")])
        told = [(row.run_id, row.type) for row in await store.reads.outbox.due("s1", 1000, 9)]
        assert told == [("c1", "run.started"), ("c2", "run.started"), ("c1", "run.cancelled")]


async def test_closing_by_number_goes_on_after_the_last_event(store: Store) -> None:
    async with opened(store):
        await write(store, a_run("r"))
        await write(store, an_event("r", 2), an_event("r", 3))
        await write(store, a_park("r"))
        await write(store, a_close("r"))
        assert [event.seq for event in await store.reads.events(await row_of(store, "r"), 0, 10)] == [1, 2, 3, 4]


async def test_what_has_begun_is_not_closed_as_unbegun(store: Store) -> None:
    """Once claimed, a run's code may have done something that wants cleaning up."""
    async with opened(store):
        await write(store, a_ripe_run("fresh"))
        await write(store, a_ripe_run("begun", priority=1))
        await write(store, a_claim(limit=1))
        assert (await row_of(store, "begun")).begun_at == 1000
        assert (await row_of(store, "fresh")).begun_at is None
        assert await write(store, a_close("fresh", only_unbegun=True)) == Applied()
        assert await write(store, a_close("begun", only_unbegun=True)) == Moved()


async def test_a_refused_close_takes_nobody_along(store: Store) -> None:
    """The message to the parent stands or falls with the end it tells of."""
    async with opened(store):
        await write(store, a_run("p"))
        await write(store, a_run("c"))
        tell = TellRun("p", "child:c", "ChildResult", "{}", 3000)
        refused, neighbour = await answers(store, [a_close("c"), tell], [a_run("n")])
        assert (refused, neighbour) == (Moved(), Applied())
        assert await store.reads.unread("p") == []
        assert (await row_of(store, "p")).messages == 0


async def test_an_id_changes_hands_only_from_a_closed_run(store: Store) -> None:
    async with opened(store):
        await write(store, a_run("r1", "same"))
        refused = await write(store, SupersedeRun("r1", None), a_run("r2", "same"))
        assert isinstance(refused, Taken)
        assert (refused.run.run_id, (await row_of(store, "r1")).status) == ("r1", "RUNNING")
        await write(store, an_end("r1", 2))
        assert await write(store, SupersedeRun("r1", None), a_run("r2", "same")) == Applied()
        latest = await store.reads.latest_run("main", "same")
        assert latest is not None
        assert latest.run_id == "r2"
        taken = await write(store, a_run("r3", "same"))
        assert isinstance(taken, Taken)
        assert taken.run.run_id == "r2"


async def test_a_run_hands_over_to_its_successor_in_one_group(store: Store) -> None:
    """Its unread signals go along; what its children told it does not."""
    async with opened(store):
        await write(store, a_run("r1", "same"))
        for number in (1, 2):
            await write(store, a_message("r1", f"m-{number}"))
        await write(store, TakeMessage(1, 2), an_event("r1", 2))
        child = rows.message_body(ChildResult("x", "wf", "c", "c", msgspec.Raw(b"1")))
        await write(store, TellRun("r1", "child:c", "ChildResult", child, 1500))
        successor = a_rich_run("r2", workflow_id="same", continued_from="r1")
        supersede, move = SupersedeRun("r1", WORKER), MoveMessages("r1", "r2")
        assert await write(store, supersede, successor, move, an_end("r1", 3)) == Applied()
        assert [message.message_id for message in await store.reads.unread("r2")] == ["m-2"]
        assert (await row_of(store, "r2")).messages == 1
        assert [message.message_id for message in await store.reads.unread("r1")] == ["child:c"]


async def test_children_are_asked_to_stop_each_as_it_was_started_to(store: Store) -> None:
    async with opened(store):
        await write(store, a_run("p"))
        await write(store, a_live_child("c1"))
        await write(store, a_live_child("c2", on_parent_close="terminate"))
        await write(store, a_live_child("c3", on_parent_close="abandon"))
        await write(store, a_live_child("other", parent="q"))
        answer = await write(store, a_stop("p"))
        assert isinstance(answer, Applied)
        assert isinstance(answer.value, list)
        assert sorted(child.run_id for child in answer.value) == ["c1", "c2"]
        kinds = {c: [type(m.body).__name__ for m in await store.reads.unread(c)] for c in ("c1", "c2", "c3", "other")}
        assert kinds == {"c1": ["CancelRequest"], "c2": ["TerminateRequest"], "c3": [], "other": []}
        told = await row_of(store, "c1")
        assert (told.messages, told.cancel_reason, told.cancel_requested_at) == (1, "over", 3000)
        assert await write(store, a_stop("p")) == Applied()
        assert (await row_of(store, "c1")).messages == 1


async def test_one_child_is_asked_by_its_place(store: Store) -> None:
    async with opened(store):
        await write(store, a_live_child("c1"))
        await write(store, a_live_child("c2"))
        assert await write(store, a_stop("p", place="place of c2")) == Applied([StoppedChild("c2", 1, "CancelRequest")])
        assert await store.reads.unread("c1") == []


async def test_children_that_have_not_begun_are_closed_with_their_parent(store: Store) -> None:
    """Their code was never called: there is nothing to clean up, and nobody is needed for it."""
    async with opened(store):
        await write(store, a_child("c1"))
        await write(store, a_child("c2", on_parent_close="terminate"))
        await write(store, a_child("c3", on_parent_close="abandon"))
        await write(store, a_live_child("c4"))
        assert await write(store, a_stop("p")) == Applied([StoppedChild("c4", 1, "CancelRequest")])
        statuses = [(await row_of(store, run_id)).status for run_id in ("c1", "c2", "c3", "c4")]
        assert statuses == ["CANCELLED", "TERMINATED", "PENDING", "RUNNING"]
        closing = rows.closing_event(await row_of(store, "c1"))
        assert closing is not None
        assert (closing.seq, rows.body_of(closing.fact)) == (2, '{"reason":"over"}')


async def test_a_request_to_stop_and_ids_of_signals_hold_for_the_successor(store: Store) -> None:
    async with opened(store):
        await write(store, a_run("r1", "same"))
        await write(store, a_message("r1", "signal:once"))
        await write(store, TakeMessage(1, 2), an_event("r1", 2))
        await write(store, NoteCancel("r1", "enough", 9000, 2000))
        supersede, move = SupersedeRun("r1", WORKER), MoveMessages("r1", "r2")
        await write(store, supersede, a_rich_run("r2", workflow_id="same", continued_from="r1"), move, an_end("r1", 3))
        row = await row_of(store, "r2")
        assert (row.cancel_reason, row.close_at, row.close_as) == ("enough", 9000, "CANCELLED")
        assert await write(store, a_message("r2", "signal:once")) == Applied(Posted(1, None))
        assert await store.reads.unread("r2") == []


async def test_a_successor_knows_the_last_thousand_ids_of_signals(store: Store) -> None:
    """Who sends one again sends one of the last: however many there were before, it must not count twice."""
    async with opened(store):
        await write(store, a_run("r1", "same"))
        posted = await answers(store, *[[a_message("r1", f"signal:{number}")] for number in range(1200)])
        numbers = [told.value.number for told in posted if isinstance(told, Applied) and isinstance(told.value, Posted)]
        await answers(store, *[[TakeMessage(number, 2)] for number in numbers])
        supersede, move = SupersedeRun("r1", WORKER), MoveMessages("r1", "r2")
        await write(store, supersede, a_rich_run("r2", workflow_id="same", continued_from="r1"), move, an_end("r1", 3))
        for number in (200, 700, 1199):
            told = await write(store, a_message("r2", f"signal:{number}"))
            assert told == Applied(Posted(numbers[number], None))
        assert await store.reads.unread("r2") == []


async def lost_with_all(store: Store, worker_id: str) -> Answer:
    """A worker comes, takes all there is, and is lost."""
    await write(store, RegisterWorker(worker_id, "main", 99_000, ("default",), "host", 1, 1000), worker=None)
    await write(store, ClaimRuns(worker_id, "main", ("default",), ("wf",), 9000, 10, 1), worker=None)
    return await write(store, RaiseEpoch(worker_id, 1), FreeRuns(worker_id, 1000, 10), worker=None)


async def test_whoever_waits_for_a_suspect_is_no_company_however_far_up(store: Store) -> None:
    """A program with one run, killed in a child of a child of that, endangers nobody; it must never be held."""
    async with opened(store):
        await write(store, a_child("child", "parent"))
        for worker_id in ("lost-1", "lost-2"):
            assert await lost_with_all(store, worker_id) == Applied(Freed(1))
        await write(store, a_child("parent", "grandparent"), a_child("grandparent", "great-grandparent"))
        await write(store, a_ripe_run("great-grandparent"))
        assert await lost_with_all(store, "lost-3") == Applied(Freed(4, Paused("child", 3, 2000)))
        await write(store, a_ripe_run("bystander"))
        assert await lost_with_all(store, "lost-4") == Applied(Freed(5, Blamed("child", 1)))


async def test_nobody_under_the_same_root_is_company_of_a_suspect(store: Store) -> None:
    """A program with one run whose children wait, one of them for a person, is as harmless as one without."""
    async with opened(store):
        await write(store, a_child("suspect", "parent"))
        for worker_id in ("lost-1", "lost-2"):
            assert await lost_with_all(store, worker_id) == Applied(Freed(1))
        await write(store, a_ripe_run("root"), a_child("parent", "root"))
        await write(store, a_child("sibling", "parent"), a_child("its child", "suspect"), a_child("cousin", "sibling"))
        assert await lost_with_all(store, "lost-3") == Applied(Freed(6, Paused("suspect", 3, 2000)))
        await write(store, a_ripe_run("bystander"))
        assert await lost_with_all(store, "lost-4") == Applied(Freed(7, Blamed("suspect", 1)))


async def test_nobody_minds_a_message_to_a_run_that_has_ended(store: Store) -> None:
    async with opened(store):
        await write(store, a_run("p"))
        answer = await write(store, TellRun("p", "child:c", "ChildResult", "{}", 1500))
        assert answer == Applied(Posted(1, 1))
        await write(store, an_end("p", 2))
        assert await write(store, TellRun("p", "child:d", "ChildResult", "{}", 1500)) == Applied()
        assert await write(store, TellRun("nobody", "child:d", "ChildResult", "{}", 1500)) == Applied()


async def test_a_request_to_stop_is_seen_in_the_row_and_the_earliest_end_holds(store: Store) -> None:
    async with opened(store):
        await write(store, a_rich_run("r", timeout_ms=4000, close_at=5000))
        await write(store, NoteCancel("r", "first", None, 2000))
        row = await row_of(store, "r")
        assert (row.cancel_reason, row.cancel_requested_at, row.close_at, row.close_as) == (
            *("first", 2000),
            *(5000, "TIMED_OUT"),
        )
        await write(store, NoteCancel("r", "second", 6000, 2100))
        assert (await row_of(store, "r")).close_at == 5000
        await write(store, NoteCancel("r", "third", 4000, 2200))
        row = await row_of(store, "r")
        assert (row.cancel_reason, row.close_at, row.close_as) == ("first", 4000, "CANCELLED")
        assert [found.run_id for found in await store.reads.overdue("main", 3999, 10)] == []
        assert [found.run_id for found in await store.reads.overdue("main", 4000, 10)] == ["r"]
        assert await store.reads.overdue("other", 4000, 10) == []


async def test_a_signal_does_not_wake_a_run_before_its_delay_is_over(store: Store) -> None:
    async with opened(store):
        await write(store, a_rich_run("r", wake_at=9000, delayed_until=9000))
        await write(store, a_message("r"))
        assert (await row_of(store, "r")).wake_at == 9000
        await write(store, a_message("r", "m-2")._replace(at=9500))
        assert (await row_of(store, "r")).wake_at == 9000


async def test_a_signal_does_not_keep_what_comes_with_it_from_waking_a_delayed_run(store: Store) -> None:
    """A request to stop that was written beside a signal would be read when the delay is over, in a month perhaps."""
    async with opened(store):
        await write(store, a_rich_run("r", wake_at=9000, delayed_until=9000))
        stop = a_message("r", "m-2")._replace(kind="CancelRequest", body=rows.message_body(CancelRequest("over")))
        # The note beside it keeps Postgres from writing all of it in one round trip, as with any cancel.
        await answers(store, [a_message("r")], [stop, NoteCancel("r", "over", None, 1500)])
        # Where there are turns, it has one, which lies below zero; else it is ripe by the time it was sent at.
        assert ((await row_of(store, "r")).wake_at or 0) <= 1500


async def test_only_the_owner_says_what_a_run_is_at(store: Store) -> None:
    async with opened(store):
        await write(store, a_run("r"))
        assert await write(store, Annotate("r", WORKER, '{"a":2}', "packing", 3000, "main")) == Applied()
        row = await row_of(store, "r")
        assert (row.attributes, row.step) == ('{"a":2}', "packing")
        assert await write(store, Annotate("r", "w-2", "{}", None, 3000, "main")) == Moved()


async def test_only_the_owner_says_what_a_run_has_to_undo(store: Store) -> None:
    async with opened(store):
        await write(store, a_run("r"))
        assert await write(store, NoteUndo("r", WORKER, WAITING)) == Applied()
        assert (await row_of(store, "r")).undo == WAITING
        assert await write(store, NoteUndo("r", "w-2", None)) == Moved()


@pytest.mark.parametrize(("given", "said"), [(None, WAITING), (DONE, DONE)], ids=["nothing", "something"])
async def test_the_end_of_a_run_says_what_it_has_undone(store: Store, given: str | None, said: str) -> None:
    """In one statement with the end; an end that says nothing of it leaves what was said before."""
    async with opened(store):
        await write(store, a_run("r"))
        await write(store, NoteUndo("r", WORKER, WAITING))
        await write(store, an_end("r", 2)._replace(undo=given))
        assert (await row_of(store, "r")).undo == said


@pytest.mark.parametrize("held", [None, "mismatch", "quarantine", "paused"])
@pytest.mark.parametrize("undo", [None, WAITING, DONE], ids=["nothing", "something", "done"])
@pytest.mark.parametrize("how", ["timeout", "cancel"])
async def test_what_is_out_of_time_and_has_something_to_undo_is_left_to_a_worker(
    store: Store, how: str, undo: str | None, held: str | None
) -> None:
    """Only its code can undo it; but a request to stop by then holds, and one that cannot go on goes nowhere.

    One that was paused at the look and goes on at the write is not closed: the write looks once more.
    """
    async with opened(store):
        close_at = 2000 if how == "timeout" else None
        await write(store, a_rich_run("r", owner=WORKER, status="RUNNING", wake_at=None, close_at=close_at))
        await write(store, NoteUndo("r", WORKER, undo))
        if how == "cancel":
            await write(store, NoteCancel("r", "over", 2000, 1500))
        if held:
            await write(store, HoldRun("r", WORKER, held, "{}", 1500))
        else:
            await write(store, a_park("r", wake_at=None))
        is_left = how == "timeout" and undo == WAITING and held in {None, "paused"}
        overdue = await store.reads.overdue("main", 2000, 10)
        assert [row.run_id for row in overdue] == ([] if is_left else ["r"])
        status = "TIMED_OUT" if how == "timeout" else "CANCELLED"
        answer = await write(store, CloseFreeRun("r", "main", status, "{}", 3000, only_unbegun=False))
        assert answer == (Moved() if is_left else Applied())


async def test_a_deadline_ends_a_run_that_undoes_after_its_timeout(store: Store) -> None:
    """Its timeout is over, and must not be what holds for ever."""
    async with opened(store):
        await write(store, a_rich_run("r", owner=WORKER, status="RUNNING", wake_at=None, close_at=2000))
        await write(store, NoteUndo("r", WORKER, WAITING))
        await write(store, NoteCancel("r", "over", 5000, 3000))
        row = await row_of(store, "r")
        assert (row.close_at, row.close_as) == (5000, "CANCELLED")
        assert await store.reads.overdue("main", 4999, 10) == []
        assert [row.run_id for row in await store.reads.overdue("main", 5000, 10)] == ["r"]


async def test_a_loaded_run_knows_its_children(store: Store) -> None:
    async with opened(store):
        await write(store, a_run("p"))
        await write(store, a_child("c1"))
        await write(store, a_child("c2"))
        (loaded,) = await store.reads.load_runs(["p"], WORKER)
        assert isinstance(loaded, LoadedRun)
        assert loaded.children == {"c1", "c2"}


async def test_a_run_inserted_as_ones_own_is_not_begun_twice(store: Store) -> None:
    """A child's id follows from its parent: a new owner of the parent may insert it once more."""
    async with opened(store):
        await write(store, a_child("c"))
        mine = a_child("c", owner=WORKER, status="RUNNING", wake_at=None)
        answer = await write(store, mine)
        assert isinstance(answer, Taken)
        assert (answer.run.run_id, answer.run.owner) == ("c", None)


async def test_messages_of_one_batch_keep_their_order_and_are_counted_each(store: Store) -> None:
    """One statement puts them all; each is answered as if it had come alone."""
    async with opened(store):
        await write(store, a_run("r1"))
        await write(store, a_run("r2"))
        await write(store, a_run("over"))
        await write(store, an_end("over", 2))
        await write(store, a_message("r1", "known"))
        told = await answers(
            store,
            [a_message("r1", "a")],
            [a_message("r2", "b")],
            [a_message("over", "c")],
            [a_message("r1", "known")],
            [a_message("nobody", "d")],
            [a_message("r1", "e")],
            [a_message("r1", "e")],
        )
        assert told == [
            Applied(Posted(2, 2)),
            Applied(Posted(3, 1)),
            Closed("COMPLETED"),
            Applied(Posted(1, None)),
            Missing(),
            Applied(Posted(5, 3)),
            Applied(Posted(5, None)),
        ]
        assert [message.message_id for message in await store.reads.unread("r1")] == ["known", "a", "e"]
        assert [(await row_of(store, run_id)).messages for run_id in ("r1", "r2", "over")] == [3, 1, 0]


async def test_attributes_of_code_and_from_outside_are_merged_in_either_order(store: Store) -> None:
    """Neither side knows what the other one writes just now; what both have changed must be there."""
    async with opened(store):
        await write(store, a_live_run("r", attributes='{"a":1}'))
        moved_at = (await row_of(store, "r")).updated_at
        # The worker has not seen what came from outside.
        assert await write(store, SetAttributes("r", "main", '{"a":1}', '{"a":2,"b":2}', 2000)) == Applied()
        assert (await row_of(store, "r")).updated_at == moved_at
        note = Annotate("r", WORKER, '{"a":1,"c":3}', None, 3000, "main", '{"a":1}', '{"a":1,"c":3}', '{"c":3}')
        assert await write(store, note) == Applied()
        row = await store.reads.run("main", "r")
        assert row is not None
        assert json.loads(row.attributes or "") == {"a": 2, "b": 2, "c": 3}
        assert json.loads(row.own_attributes or "") == {"a": 1, "c": 3}
        for where in ("a = 2", "b = 2", "c = 3"):
            assert len((await store.reads.matching.page(RunQuery("main", parse(where, now=0)))).rows) == 1
        assert await store.reads.matching.count(RunQuery("main", parse("a = 1", now=0))) == {None: 0}

        # Whoever is outside has not seen what the code says.
        assert await write(store, SetAttributes("r", "main", '{"a":2,"b":2}', '{"z":1}', 4000)) == Moved()
        assert await store.reads.run("main", "r") == row
        # And a worker that has lost the run changes nothing.
        assert await write(store, note._replace(worker_id="w-2")) == Moved()
        assert await store.reads.run("main", "r") == row
