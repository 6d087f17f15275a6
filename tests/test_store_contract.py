"""The contract every store fulfils: operations in, answers out, all or nothing."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from perdure.errors import NewerSchema, NotADatabase, RunUnreadable, StoreError
from perdure.kernel.messages import Message
from perdure.kernel.outbox import types_of
from perdure.stores.answers import (
    Answer,
    Applied,
    Broken,
    Closed,
    Committed,
    Differs,
    Failed,
    Fenced,
    Freed,
    Full,
    KeptKey,
    Missing,
    Moved,
    Outcome,
    Posted,
    Remaining,
    Taken,
)
from perdure.stores.operations import (
    AppendEvent,
    Batch,
    BeginAttempt,
    ClaimOne,
    ClaimRuns,
    CreateNamespace,
    DeleteNamespace,
    DeleteSink,
    DeleteWorker,
    EndGap,
    EndRun,
    FailedDelivery,
    FinishKey,
    ForgetKeys,
    FreeMismatches,
    FreeRuns,
    HoldRun,
    InsertRun,
    InsertSink,
    MoveSink,
    NoteDeliveries,
    NoteReply,
    NoteWaiting,
    Operation,
    ParkRun,
    PostDelayed,
    PostMessage,
    RaiseEpoch,
    RecordAttempt,
    RecordBeat,
    RegisterWorker,
    ReleaseKey,
    ReplayDeadLetters,
    ResendEvents,
    TakeDuty,
    TakeKey,
    TakeMessage,
    TellRun,
)
from perdure.stores.port import Store
from perdure.stores.postgres.store import PostgresStore
from perdure.stores.queries import migrations
from perdure.stores.records import BacklogRow, CallProgress, LoadedRun, RunFilter
from perdure.stores.sqlite.store import SqliteStore
from tests.simulation.memory import MemoryStore

WORKER = "w-1"


@pytest.fixture(params=["memory", "file", "simulated", "postgres"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    if request.param == "simulated":
        return MemoryStore()
    if request.param == "postgres":
        return PostgresStore(request.getfixturevalue("empty_url"))
    return SqliteStore(None if request.param == "memory" else str(tmp_path / "contract.db"), threads=False)


@asynccontextmanager
async def opened(store: Store) -> AsyncIterator[Store]:
    await store.open()
    await write(store, RegisterWorker(WORKER, "main", 99_000, ("default",), "host", 1, 1000), worker=None)
    yield store
    await store.close()


async def commit(
    store: Store, groups: Sequence[Sequence[Operation]], worker: str | None = WORKER, epoch: int = 1
) -> Outcome:
    told: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
    store.commit(Batch(groups, worker, epoch), told.set_result)
    return await told


async def answers(store: Store, *groups: Sequence[Operation]) -> list[Answer]:
    outcome = await commit(store, groups)
    assert isinstance(outcome, Committed)
    return [outcome.answers.get(number, Applied()) for number in range(len(groups))]


async def write(store: Store, *operations: Operation, worker: str | None = WORKER, epoch: int = 1) -> Answer:
    outcome = await commit(store, [operations], worker, epoch)
    assert isinstance(outcome, Committed)
    return outcome.answers.get(0, Applied())


def a_run(run_id: str, workflow_id: str | None = None, **changes: object) -> InsertRun:
    run = InsertRun(run_id, "main", workflow_id or run_id, "wf", "default", "RUNNING", WORKER, None, 0, "{}", 7, 1000)
    return run._replace(**changes)  # type: ignore[arg-type]  # a test's shorthand


def a_ripe_run(run_id: str, **changes: object) -> InsertRun:
    return a_run(run_id)._replace(status="PENDING", owner=None, wake_at=1000, **changes)  # type: ignore[arg-type]  # as above


def an_event(run_id: str, seq: int, result: str = "1") -> AppendEvent:
    body = f'{{"name":"step","arguments":{{}},"result":{result},"started_at":1}}'
    return AppendEvent("main", run_id, seq, "ActivityCompleted", f"step#{seq}", 1000 + seq, body)


def an_end(run_id: str, seq: int, outcome: str = "1") -> EndRun:
    return EndRun(run_id, "COMPLETED", outcome, seq, 2000, WORKER, "main")


def a_message(run_id: str, message_id: str = "m-1") -> PostMessage:
    return PostMessage(run_id, message_id, "SignalSent", '{"name":"go","payload":1}', 1500)


def a_claim(limit: int = 10, queues: tuple[str, ...] = ("default",), workflows: tuple[str, ...] = ("wf",)) -> ClaimRuns:
    return ClaimRuns(WORKER, "main", queues, workflows, 1000, limit)


def a_park(run_id: str, messages: int | None = 0, wake_at: int | None = None) -> ParkRun:
    return ParkRun(run_id, WORKER, "SUSPENDED", wake_at, "[]", messages, 1600)


async def test_a_namespace_is_deleted_when_nothing_is_left_in_it(store: Store) -> None:
    async with opened(store):
        assert await write(store, CreateNamespace("blue", 1000)) == Applied()
        assert await write(store, CreateNamespace("blue", 2000)) == Moved()
        assert await write(store, a_run("r1", namespace="blue")) == Applied()
        assert await write(store, DeleteNamespace("blue")) == Remaining(1, 0)
        assert await write(store, RegisterWorker("w-2", "green", 1, (), "host", 1, 1000)) == Applied()
        assert await write(store, DeleteNamespace("green")) == Remaining(0, 1)
        assert [name for name, _ in await store.reads.namespaces.all()] == ["blue", "green", "main"]
        assert await write(store, DeleteWorker("w-2"), DeleteNamespace("green")) == Applied()
        assert await write(store, DeleteNamespace("green")) == Moved()
        assert [name for name, _ in await store.reads.namespaces.all()] == ["blue", "main"]


def a_key(holder: str, key: str = "k", **changes: object) -> TakeKey:
    taken = TakeKey(holder, "main", "start", key, "digest", '"done"', 1000, 1600, 9000)
    return taken._replace(**changes)  # type: ignore[arg-type]  # a test's shorthand


async def test_a_key_stands_and_falls_with_what_is_done_under_it(store: Store) -> None:
    """A key without its effect would answer for nothing; an effect without its key would be done again."""
    async with opened(store):
        assert await write(store, a_key("a"), a_run("r1", "one")) == Applied()
        assert await write(store, a_key("b"), a_run("r2", "two")) == KeptKey(a_key("a").row)
        assert await store.reads.run("main", "r2") is None
        # Refused for another reason: no key is left. And the key is told before anything else that speaks against it.
        assert isinstance(await write(store, a_key("c", "other"), a_run("r3", "one")), Taken)
        assert await store.reads.keys.kept("main", "start", "other") is None
        assert await write(store, a_key("d"), a_run("r3", "one")) == KeptKey(a_key("a").row)
        # Of several in one batch the first; each with all it has or nothing, and its neighbours are not harmed.
        found = await answers(store, [a_key("e", "l"), a_run("r4")], [a_run("r5")], [a_key("f", "l"), a_run("r6")])
        assert found == [Applied(), Applied(), KeptKey(a_key("e", "l").row)]
        assert [(await store.reads.run("main", run_id)) is not None for run_id in ("r4", "r5", "r6")] == [1, 1, 0]
        found = await answers(store, [a_key("g", "m"), a_run("r7", "one")], [a_key("h", "m"), a_run("r8")])
        assert [type(each) for each in found] == [Taken, Applied]
        assert await store.reads.keys.kept("main", "start", "m") == a_key("h", "m").row
        # Another command, or another namespace, has keys of its own.
        assert await write(store, a_key("i", command="cancel"), a_key("j", namespace="blue")) == Applied()


async def test_a_key_is_taken_over_when_its_time_has_come(store: Store) -> None:
    async with opened(store):
        held = a_key("a", answer=None)
        assert await write(store, held) == Applied()
        late = a_key("b", answer=None, at=1600, stale_at=2200)
        assert await write(store, late._replace(at=1599)) == KeptKey(held.row)
        # Not by another command, nor by two.
        assert await write(store, late._replace(digest="else")) == KeptKey(held.row)
        assert await answers(store, [late], [late._replace(holder="c")]) == [Applied(), KeptKey(late.row)]
        # The next one waits as long for who has taken it over.
        assert await write(store, late._replace(holder="d", at=2199)) == KeptKey(late.row)
        assert await write(store, FinishKey("main", "start", "k", "a", "1", 9000)) == Moved()
        assert await write(store, ReleaseKey("main", "start", "k", "a")) == Moved()
        assert await write(store, FinishKey("main", "start", "k", "b", "1", 5000)) == Applied()
        assert await write(
            store, NoteReply("main", "start", "k", "a", "no"), NoteReply("main", "start", "k", "b", "yes")
        ) == (Applied())
        kept = await store.reads.keys.kept("main", "start", "k")
        assert kept == ("digest", "b", "1", 1600, 5000, "yes")
        # What is finished is not taken over, but is as good as new when it is not kept any more.
        assert isinstance(await write(store, a_key("d", at=4999)), KeptKey)
        assert await write(store, a_key("e", at=5000, keep_until=5100)) == Applied()
        assert await write(store, ReleaseKey("main", "start", "k", "e")) == Applied()
        assert await store.reads.keys.kept("main", "start", "k") is None


async def test_old_keys_are_forgotten_a_bite_at_a_time(store: Store) -> None:
    async with opened(store):
        for number in range(5):
            await write(store, a_key(f"h{number}", f"k{number}", keep_until=2000 + number))
        assert await store.reads.keys.oldest() == 2000
        assert await write(store, ForgetKeys(2003, 3)) == Applied(True)
        assert await store.reads.keys.oldest() == 2003
        assert await write(store, ForgetKeys(2003, 3)) == Applied(False)
        assert await store.reads.keys.oldest() == 2004
        await write(store, CreateNamespace("blue", 1000))
        await write(store, a_key("b", namespace="blue", keep_until=1500))
        assert await write(store, DeleteNamespace("blue")) == Applied()
        assert await store.reads.keys.oldest() == 2004


async def test_a_run_is_written_and_read_back(store: Store) -> None:
    async with opened(store):
        assert await write(store, a_run("r1", "order-1")) == Applied()
        row = await store.reads.run("main", "r1")
        assert row is not None
        assert (row.workflow_id, row.status, row.input, row.seed) == ("order-1", "RUNNING", "{}", 7)
        assert await store.reads.latest_run("main", "order-1") == row
        assert await store.reads.run("other", "r1") is None


@pytest.mark.parametrize("store", ["file", "simulated"], indirect=True)
async def test_the_mark_of_a_store_moves_when_something_is_written(store: Store) -> None:
    """And by no question: else a bulk action believed that others write, and was slow for nothing.

    One file has one writer at a time; on Postgres they need not wait for each other.
    """
    async with opened(store):
        before = await store.changes.mark()
        await store.reads.run("main", "r1")
        assert await store.changes.mark() == before
        await write(store, a_run("r1"))
        assert await store.changes.mark() != before


async def test_a_taken_workflow_id_is_answered_with_its_run_and_harms_no_neighbour(store: Store) -> None:
    async with opened(store):
        first, second, third = await answers(store, [a_run("r1", "same")], [a_run("r2", "same")], [a_run("r3")])
        assert (first, third) == (Applied(), Applied())
        assert isinstance(second, Taken)
        assert second.run.run_id == "r1"


async def test_a_start_written_twice_is_applied_once(store: Store) -> None:
    """After a lost answer the same start is written again."""
    async with opened(store):
        await write(store, a_run("r1", "same"))
        assert await write(store, a_run("r1", "same")) == Applied()
        assert len(await store.reads.list_runs(RunFilter("main"))) == 1


async def test_a_run_may_start_move_and_end_in_one_batch(store: Store) -> None:
    async with opened(store):
        await write(store, a_run("r1"), an_event("r1", 2), an_end("r1", 3))
        row = await store.reads.run("main", "r1")
        assert row is not None
        assert (row.status, row.closed_at, row.owner) == ("COMPLETED", 2000, None)
        assert [event.seq for event in await store.reads.events(row, 0, 10)] == [1, 2, 3]


async def test_events_are_read_in_order_and_in_pages(store: Store) -> None:
    async with opened(store):
        await write(store, a_run("r1"), *[an_event("r1", seq) for seq in range(2, 8)], an_end("r1", 8))
        row = await store.reads.run("main", "r1")
        assert row is not None
        pages = [[e.seq for e in await store.reads.events(row, after, 3)] for after in (0, 3, 6, 8)]
        assert pages == [[1, 2, 3], [4, 5, 6], [7, 8], []]


async def test_large_values_come_back_whole(store: Store) -> None:
    """What is too large for its row has a place of its own, and nobody notices."""
    async with opened(store):
        large = '"' + "x" * 5000 + '"'
        await write(store, a_run("r1", input=large), an_event("r1", 2, large), an_end("r1", 3, large))
        row = await store.reads.run("main", "r1")
        assert row is not None
        assert (row.input, row.outcome) == (large, large)
        event = (await store.reads.events(row, 1, 1))[0]
        assert msgspec.json.encode(event.fact).count(b"x") == 5000


async def test_a_stale_epoch_writes_nothing(store: Store) -> None:
    async with opened(store):
        assert isinstance(await commit(store, [[a_run("r1")]], epoch=2), Fenced)
        assert isinstance(await commit(store, [[a_run("r1")]], worker="unknown"), Fenced)
        assert await store.reads.run("main", "r1") is None


async def test_one_broken_group_harms_no_neighbour(store: Store) -> None:
    """A second event under one number cannot be; the groups around it must not suffer."""
    async with opened(store):
        await write(store, a_run("r1"), an_event("r1", 2))
        first, broken, last = await answers(store, [a_run("r2")], [an_event("r1", 2), an_end("r1", 3)], [a_run("r3")])
        assert (first, last) == (Applied(), Applied())
        assert isinstance(broken, Broken)
        row = await store.reads.run("main", "r1")
        assert row is not None
        assert row.closed_at is None


async def test_a_run_is_ended_only_by_its_owner(store: Store) -> None:
    async with opened(store):
        await write(store, a_ripe_run("r1"))
        assert isinstance(await write(store, an_end("r1", 2)), Broken)


async def test_a_message_finds_its_run_open_closed_or_not_at_all(store: Store) -> None:
    async with opened(store):
        await write(store, a_run("r1"))
        assert await write(store, a_message("r1")) == Applied(Posted(1, 1))
        assert await write(store, a_message("r1", "m-2")) == Applied(Posted(2, 2))
        assert await write(store, a_message("nobody")) == Missing()
        await write(store, an_end("r1", 2))
        assert await write(store, a_message("r1", "m-3")) == Closed("COMPLETED")


async def test_a_message_written_twice_is_there_once(store: Store) -> None:
    """Also when it was taken in between, and when its run has ended."""
    async with opened(store):
        await write(store, a_run("r1"))
        await write(store, a_message("r1"))
        assert await write(store, a_message("r1")) == Applied(Posted(1, None))
        await write(store, an_event("r1", 2), TakeMessage(1, 2))
        await write(store, an_end("r1", 3))
        assert await write(store, a_message("r1")) == Applied(Posted(1, None))
        assert await store.reads.unread("r1") == []


async def test_signals_that_were_set_aside_can_be_read(store: Store) -> None:
    """They became no event, and are not unread; nothing else tells what came of them."""
    async with opened(store):
        await write(store, a_run("r1"))
        for number in range(1, 4):
            await write(store, a_message("r1", f"m-{number}"))
        await write(store, TakeMessage(3, 0))
        await write(store, TakeMessage(2, 2))
        assert [message.message_id for message in await store.reads.set_aside("r1")] == ["m-3"]


async def test_unread_messages_are_read_in_order(store: Store) -> None:
    async with opened(store):
        await write(store, a_run("r1"))
        await write(store, a_message("r1", "m-1"))
        begin = await store.reads.last_message()
        await write(store, a_message("r1", "m-2"))
        await write(store, a_message("r1", "m-3"))
        await write(store, TakeMessage(2, 2))
        assert [message.message_id for message in await store.reads.unread("r1")] == ["m-1", "m-3"]
        found, last = await store.reads.new_messages(WORKER, begin)
        assert [(run_id, m.number, had) for run_id, m, had in found if isinstance(m, Message)] == [("r1", 3, 3)]
        assert (await store.reads.new_messages(WORKER, last))[0] == []


async def test_unread_messages_are_read_page_by_page(store: Store) -> None:
    """With how many the run has had by then, so that whoever reads them knows whether one is missing."""
    async with opened(store):
        await write(store, a_run("r1"))
        for number in range(1, 6):
            await write(store, a_message("r1", f"m-{number}"))
        await write(store, TakeMessage(2, 2))
        page, had = await store.reads.unread_page("r1", 0, 2)
        assert ([message.number for message in page], had) == ([1, 3], 5)
        page, had = await store.reads.unread_page("r1", 3, 10)
        assert ([message.number for message in page], had) == ([4, 5], 5)
        assert await store.reads.unread_page("r1", 5, 10) == ([], 5)
        assert await store.reads.unread_page("nobody", 0, 10) == ([], 0)


async def test_a_run_with_many_unread_messages_takes_no_more_of_those_that_can_wait(store: Store) -> None:
    """Whatever was taken is kept; a child's end, and requests to stop, are always taken."""

    def a_signal(number: int) -> PostMessage:
        return a_message("r1", f"m-{number}")._replace(most=3)

    async with opened(store):
        await write(store, a_run("r1"))
        told = await answers(store, *[[a_signal(number)] for number in range(5)])
        assert [type(answer) for answer in told] == [Applied, Applied, Applied, Full, Full]
        assert told[4] == Full(3)
        told = await answers(store, [a_signal(1)], [a_signal(5)], [TellRun(*a_message("r1", "child:c")[:5])])
        assert [type(answer) for answer in told] == [Applied, Full, Applied]
        assert isinstance(await write(store, a_message("r1", "stop")), Applied)
        first, second, third, *_ = [message.number for message in await store.reads.unread("r1")]
        await write(store, TakeMessage(first, 2))
        assert await write(store, a_signal(6)) == Full(3)
        await answers(store, [TakeMessage(second, 3)], [TakeMessage(third, 4)])
        assert isinstance(await write(store, a_signal(6)), Applied)
        assert await write(store, a_signal(7)) == Full(3)
        assert await write(store, a_message("nobody")._replace(most=3)) == Missing()


async def test_one_run_is_claimed_by_its_id_if_it_is_free_and_due(store: Store) -> None:
    """Who is told of a run takes that one, and none that sleeps, is held, has ended or is another worker's."""

    async def claimed(run_id: str, now: int = 3000, workflow: str = "wf", namespace: str = "main") -> bool:
        answer = await write(store, ClaimOne(run_id, WORKER, namespace, (workflow, "other"), now))
        assert isinstance(answer, Applied | Moved)
        return isinstance(answer, Applied)

    async with opened(store):
        await write(store, a_run("r1"), a_run("r2"), a_run("r3"))
        await write(store, ParkRun("r1", WORKER, "SUSPENDED", 4000, "[]", 0, 2000))
        await write(store, HoldRun("r2", WORKER, "paused", "{}", 2000))
        assert not await claimed("r1")
        assert not await claimed("r1", 4000, workflow="fw")
        assert not await claimed("r1", 4000, namespace="elsewhere")
        assert await claimed("r1", 4000)
        assert not await claimed("r1", 4000)
        assert not await claimed("r2")
        assert not await claimed("r3")
        assert not await claimed("nobody")
        row = await store.reads.run("main", "r1")
        assert row is not None
        assert (row.owner, row.status, row.waiting) == (WORKER, "RUNNING", None)


async def test_a_message_that_is_due_later_wakes_its_run_then(store: Store) -> None:
    """It is in the inbox at once and under its id once; a run that sleeps wakes for it, and for no other reason."""

    def delayed(run_id: str, message_id: str, due_at: int) -> PostDelayed:
        return PostDelayed(*a_message(run_id, message_id)[:5], 3, due_at)

    async def wake_at(run_id: str) -> int | None:
        row = await store.reads.run("main", run_id)
        assert row is not None
        return row.wake_at

    async with opened(store):
        for run_id in ("r1", "r2"):
            await write(store, a_run(run_id)._replace(owner=WORKER))
        for run_id, wakes in (("r1", None), ("r2", 4000)):
            await write(store, ParkRun(run_id, WORKER, "SUSPENDED", wakes, "[]", 0, 2000))
        told = await answers(store, [delayed("r1", "a", 9000)], [delayed("r1", "b", 8000)], [delayed("r2", "a", 9000)])
        assert [posted.value.count for posted in told] == [1, 2, 1]  # type: ignore[union-attr]
        assert (await wake_at("r1"), await wake_at("r2")) == (8000, 4000)
        again = await answers(store, [delayed("r1", "a", 3000)], [a_message("r1", "b")])
        assert [posted.value.count for posted in again] == [None, None]  # type: ignore[union-attr]
        assert await wake_at("r1") == 8000
        assert isinstance(await write(store, delayed("r1", "c", 9000)), Applied)
        assert await write(store, delayed("r1", "d", 9000)) == Full(3)
        assert await write(store, delayed("nobody", "a", 9000)) == Missing()
        assert [message.message_id for message in await store.reads.unread("r1")] == ["a", "b", "c"]


async def test_a_run_that_reads_its_messages_never_seems_full(store: Store) -> None:
    """How many it has had in its life says nothing of how many are unread."""
    async with opened(store):
        await write(store, a_run("r1"))
        for number in range(1, 30):
            told = await write(store, a_message("r1", f"m-{number}")._replace(most=3))
            assert isinstance(told, Applied)
            assert isinstance(told.value, Posted)
            assert told.value.count == number
            await write(store, TakeMessage(told.value.number, number + 1))


async def test_a_run_that_cannot_be_read_is_told_apart_from_those_that_can(store: Store) -> None:
    """All of them are claimed at once; what is wrong with one must not be found out at the cost of the others."""
    failure = '{"type":"builtins.ValueError","message":"no"}'
    async with opened(store):
        for run_id in ("r1", "r2", "r3", "r4", "r5", "r6"):
            await write(store, a_run(run_id), an_event(run_id, 2), a_message(run_id))
        await write(store, an_event("r2", 3)._replace(body="{"))
        await write(store, an_event("r3", 3)._replace(kind="ActivityDreamt"))
        await write(store, RecordAttempt("main", "r4", "step", 1, "step", failure[:-5], 1000, 3000))
        await write(store, a_message("r5", "m-2")._replace(body='{"name":1}'))
        found = await store.reads.load_runs(["r1", "r2", "r3", "r4", "r5", "r6"], WORKER)
        assert [run.row.run_id for run in found if isinstance(run, LoadedRun)] == ["r1", "r6"]
        unreadable = {run.run_id: run for run in found if isinstance(run, RunUnreadable)}
        assert sorted(unreadable) == ["r2", "r3", "r4", "r5"]
        for run_id, trouble in {"r2": "event 3", "r3": "'ActivityDreamt'", "r4": "attempt 1 at step"}.items():
            assert trouble in unreadable[run_id].trouble
        assert "message 7" in unreadable["r5"].trouble
        assert len(await store.reads.list_runs(RunFilter("main"))) == 6

        row = await store.reads.run("main", "r2")
        assert row is not None
        assert [event.seq for event in await store.reads.events(row, 0, 2)] == [1, 2]
        with pytest.raises(RunUnreadable, match="event 3"):
            await store.reads.events(row, 0, 3)
        with pytest.raises(RunUnreadable, match="attempt 1"):
            await store.reads.attempts("r4")


async def test_a_message_that_cannot_be_read_is_told_apart_from_those_that_can(store: Store) -> None:
    async with opened(store):
        await write(store, a_run("r1"))
        await write(store, a_run("r2"))
        await write(store, a_message("r1")._replace(kind="DreamSent"))
        await write(store, a_message("r2"))
        found, _ = await store.reads.new_messages(WORKER, 0)
        assert [run_id for run_id, _, _ in found] == ["r1", "r2"]
        (_, bad, _), (_, good, _) = found
        assert isinstance(bad, RunUnreadable)
        assert (bad.run_id, "message 1" in bad.trouble) == ("r1", True)
        assert isinstance(good, Message)
        with pytest.raises(RunUnreadable, match="'DreamSent'"):
            await store.reads.unread("r1")
        assert [message.number for message in await store.reads.unread("r2")] == [2]


async def test_parking_is_refused_when_a_message_came_first(store: Store) -> None:
    async with opened(store):
        await write(store, a_run("r1"))
        await write(store, a_message("r1"))
        assert await write(store, a_park("r1", messages=0)) == Moved()
        assert await write(store, a_park("r1", messages=1)) == Applied()
        assert await write(store, a_park("r1", messages=1)) == Moved()


async def test_a_message_to_a_parked_run_makes_it_ripe(store: Store) -> None:
    async with opened(store):
        await write(store, a_run("r1"))
        await write(store, a_park("r1", wake_at=99_999))
        assert await write(store, a_claim()) == Applied([])
        await write(store, a_message("r1")._replace(at=900))
        assert await write(store, a_claim()) == Applied(["r1"])


async def test_a_message_and_a_park_in_one_batch_lose_nothing(store: Store) -> None:
    async with opened(store):
        await write(store, a_run("r1"))
        park, post = await answers(store, [a_park("r1")], [a_message("r1")])
        (message,) = await store.reads.unread("r1")
        assert (park, post) == (Moved(), Applied(Posted(message.number, 1)))


async def test_claims_take_the_ripest_first_and_only_what_is_wanted(store: Store) -> None:
    async with opened(store):
        await write(store, a_ripe_run("r3")._replace(wake_at=500))
        await write(
            store,
            a_ripe_run("r1", priority=0),
            a_ripe_run("r2", priority=5),
            a_ripe_run("r4")._replace(wake_at=1001),
            a_ripe_run("r5", queue="other"),
            a_ripe_run("r6", workflow="unknown"),
            a_run("r7"),
        )
        first, second = await write(store, a_claim(2)), await write(store, a_claim())
        assert isinstance(first, Applied)
        assert sorted(first.value) == ["r2", "r3"]  # type: ignore[call-overload]  # a list of ids
        assert second == Applied(["r1"])


async def test_a_held_run_is_not_claimed_until_it_is_freed(store: Store) -> None:
    async with opened(store):
        await write(store, a_run("r1"))
        assert await write(store, HoldRun("r1", WORKER, "mismatch", "{}", 1600)) == Applied()
        await write(store, a_message("r1")._replace(at=900))
        assert await write(store, a_claim()) == Applied([])
        assert await write(store, FreeMismatches("main", ("default",), ("wf",), 1000)) == Applied(1)
        assert await write(store, a_claim()) == Applied(["r1"])


async def test_a_takeover_frees_runs_only_under_the_epoch_it_read(store: Store) -> None:
    async with opened(store):
        await write(store, a_run("r1"), a_run("r2"), a_run("r3"))
        stale: list[Operation] = [RaiseEpoch(WORKER, 9), FreeRuns(WORKER, 1000, 10)]
        assert await write(store, *stale, worker=None) == Moved()
        assert len(await store.reads.owned_runs(WORKER)) == 3
        fresh: list[Operation] = [RaiseEpoch(WORKER, 1), FreeRuns(WORKER, 1000, 2)]
        assert await write(store, *fresh, worker=None) == Applied(Freed(2))
        assert isinstance(await commit(store, [[a_run("r4")]]), Fenced)
        await write(store, DeleteWorker(WORKER), worker=None)
        assert len(await store.reads.workers()) == 1
        assert await write(store, FreeRuns(WORKER, 1000, 2), worker=None) == Applied(Freed(1))
        await write(store, DeleteWorker(WORKER), worker=None)
        assert await store.reads.workers() == []


async def test_a_loaded_run_has_everything(store: Store) -> None:
    async with opened(store):
        failure = '{"type":"builtins.ValueError","message":"no"}'
        await write(
            store,
            a_run("r1"),
            an_event("r1", 2),
            a_message("r1"),
            RecordAttempt("main", "r1", "step", 1, "step", failure, 1000, 3000),
            NoteWaiting("r1", WORKER, "[]", 1600),
            BeginAttempt("main", "r1", "once", 1200),
            RecordBeat("main", "r1", "once", "1", 1300),
        )
        (loaded,) = await store.reads.load_runs(["r1", "nobody"], WORKER)
        assert isinstance(loaded, LoadedRun)
        assert [event.seq for event in loaded.events] == [2]
        assert [message.message_id for message in loaded.messages or ()] == ["m-1"]
        assert [(a.place, a.attempt, a.next_at) for a in loaded.attempts] == [("step", 1, 3000)]
        assert (loaded.row.messages, loaded.row.waiting) == (1, "[]")
        assert list(loaded.progress) == [CallProgress("once", 1200, "1", 1300)]
        assert await store.reads.load_runs(["r1"], "somebody else") == []


async def test_of_many_heartbeats_the_newest_details_are_kept(store: Store) -> None:
    """A batch may hold several of one call, when the database was away for a while."""
    async with opened(store):
        await write(store, a_run("r1"), a_run("r2"))
        beats = [[RecordBeat("main", "r1", "step", str(n), 1000 + n)] for n in range(3)]
        await commit(store, [*beats, [RecordBeat("main", "r2", "step", '"other"', 1000)]])
        await commit(store, [[RecordBeat("main", "r1", "step", "7", 2000)]])
        assert await store.reads.progress(["r1", "r2", "r3"]) == {
            "r1": [CallProgress("step", None, "7", 2000)],
            "r2": [CallProgress("step", None, '"other"', 1000)],
        }


async def test_lists_are_filtered_and_go_from_new_to_old(store: Store) -> None:
    async with opened(store):
        await write(store, a_run("r1"), a_run("r2", workflow="other"), a_run("r3"), a_run("r4", namespace="n"))
        await write(store, an_end("r1", 2))

        async def ids(**wanted: object) -> list[str]:
            return [row.run_id for row in await store.reads.list_runs(RunFilter("main", **wanted))]  # type: ignore[arg-type]  # shorthand

        assert await ids() == ["r3", "r2", "r1"]
        assert await ids(status=("COMPLETED",)) == ["r1"]
        assert await ids(status=("COMPLETED", "RUNNING"), workflow="wf") == ["r3", "r1"]
        assert await ids(before="r3", limit=1) == ["r2"]
        assert await ids(workflow_id="r2") == ["r2"]


async def test_lists_of_held_runs_tell_reasons_apart(store: Store) -> None:
    """Whoever looks for runs in quarantine has no use for all those that merely wait."""
    async with opened(store):
        await write(store, *(a_run(f"r{n}") for n in range(1, 5)), a_run("r5", namespace="n"))
        for run_id, reason in (("r1", "quarantine"), ("r2", "mismatch"), ("r5", "quarantine")):
            await write(store, HoldRun(run_id, WORKER, reason, "{}", 1500))

        async def ids(**wanted: object) -> list[str]:
            return [row.run_id for row in await store.reads.list_runs(RunFilter("main", **wanted))]  # type: ignore[arg-type]  # shorthand

        assert await ids(held=("mismatch", "quarantine")) == ["r2", "r1"]
        assert await ids(held=("quarantine",)) == ["r1"]
        assert await ids(held=("quarantine", "mismatch"), before="r2") == ["r1"]
        assert await ids(held=("quarantine",), status=("RUNNING",)) == ["r4", "r3", "r1"]
        assert await ids(held=("quarantine",), workflow="none") == []
        assert await store.reads.held_counts("main") == {"mismatch": 1, "quarantine": 1}
        assert await store.reads.held_counts("n") == {"quarantine": 1}
        assert await store.reads.held_counts("nobody's") == {}


async def test_a_batch_of_thousands_is_one_transaction(store: Store) -> None:
    async with opened(store):
        groups = [[a_run(f"r{n:05}")] for n in range(2500)]
        assert await answers(store, *groups) == [Applied()] * 2500
        assert len(await store.reads.list_runs(RunFilter("main", limit=5000))) == 2500


# SQLite's own


async def test_user_code_may_open_the_same_file_in_the_same_process(tmp_path: Path) -> None:
    """Closing a file drops the locks of the whole process on it; what was acknowledged must stay."""
    path = tmp_path / "shared.db"
    async with opened(SqliteStore(str(path), threads=False)) as store:
        for number in range(50):
            with sqlite3.connect(path) as theirs:
                theirs.execute("create table if not exists theirs (n)")
                theirs.execute("insert into theirs values (?)", (number,))
            theirs.close()
            path.read_bytes()
            assert await write(store, a_run(f"r{number:02}")) == Applied()
        assert len(await store.reads.list_runs(RunFilter("main"))) == 50
    with sqlite3.connect(path) as theirs:
        assert theirs.execute("select count(*) from runs").fetchone() == (50,)
        assert theirs.execute("select count(*) from theirs").fetchone() == (50,)
        assert theirs.execute("pragma integrity_check").fetchone() == ("ok",)
    theirs.close()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"hello, world, this is text", "not a SQLite database"),
        (b"SQLite format 3\x00junk" * 9, "not a SQLite database"),
    ],
)
async def test_a_file_that_is_no_database_is_refused_and_left_alone(tmp_path: Path, content: bytes, words: str) -> None:
    path = tmp_path / "notes.txt"
    path.write_bytes(content)
    with pytest.raises(StoreError, match=words):
        await SqliteStore(str(path), threads=False).open()
    assert path.read_bytes() == content


async def test_a_database_with_tables_like_ours_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "theirs.db"
    with sqlite3.connect(path) as theirs:
        theirs.execute("create table events (what text)")
    theirs.close()
    with pytest.raises(NotADatabase, match="tables of its own named events"):
        await SqliteStore(str(path), threads=False).open()
    with sqlite3.connect(path) as theirs:
        assert theirs.execute("select name from sqlite_schema").fetchall() == [("events",)]
    theirs.close()


async def test_a_newer_schema_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "newer.db"
    async with opened(SqliteStore(str(path), threads=False)):
        pass
    with sqlite3.connect(path) as newer:
        newer.execute("update perdure_schema set version = 99")
    newer.close()
    with pytest.raises(NewerSchema, match="schema 99"):
        await SqliteStore(str(path), threads=False).open()


@pytest.mark.parametrize("act", ["removed", "replaced"])
async def test_nothing_is_acknowledged_once_the_file_is_gone(tmp_path: Path, act: str) -> None:
    """What is written to a file nobody can find is not on disk."""
    path = tmp_path / "gone.db"
    async with opened(SqliteStore(str(path), threads=False)) as store:
        path.rename(tmp_path / "elsewhere.db")
        if act == "replaced":
            path.touch()
        outcome = await commit(store, [[a_run("r1")]])
        assert isinstance(outcome, Failed)
        assert "removed or replaced" in str(outcome.error)
        path.unlink(missing_ok=True)
        (tmp_path / "elsewhere.db").rename(path)
        assert await write(store, a_run("r1")) == Applied()


@pytest.mark.parametrize("name", ["", "missing/folder.db"])
async def test_a_path_that_cannot_be_a_file_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(StoreError, match="folder"):
        await SqliteStore(str(tmp_path / name), threads=False).open()


async def test_the_file_is_synced_at_every_commit(tmp_path: Path) -> None:
    async with opened(SqliteStore(str(tmp_path / "sync.db"), threads=False)) as store:
        assert isinstance(store, SqliteStore)
        assert store.transactions.db.execute("pragma journal_mode").fetchone() == ("wal",)
        assert store.transactions.db.execute("pragma synchronous").fetchone() == (2,)


def test_every_migration_says_what_it_is_for() -> None:
    for number, text in enumerate(migrations("sqlite"), start=1):
        assert text.startswith(f"-- {number:04}: ")


async def test_a_value_that_is_written_once_stays_and_the_same_one_is_accepted(store: Store) -> None:
    """Of two in one batch as well, and in the moment in which the run ends."""

    def a_value(body: str, kind: str = "DeferredResult") -> PostMessage:
        return PostMessage("r1", "deferred:d", kind, f'{{"name":"d",{body}}}', 1500)

    async with opened(store):
        await write(store, a_run("r1"))
        first, second = await answers(store, [a_value('"value":{"a":1,"b":2}')], [a_value('"value":3')])
        assert isinstance(first, Applied)
        assert isinstance(first.value, Posted)
        assert second == Differs()

        same, error = a_value('"value":{"b":2,"a":1}'), a_value('"error":"no"', "DeferredFailure")
        told = await answers(store, [same], [error], [an_end("r1", 2)], [same], [error])
        is_there = Applied(Posted(first.value.number, None))
        assert told == [is_there, Differs(), Applied(), is_there, Differs()]
        assert [message.message_id for message in await store.reads.channels.deferreds("r1")] == ["deferred:d"]


async def test_a_database_has_a_secret_that_stays(store: Store) -> None:
    async with opened(store):
        secret = await store.reads.channels.secret()
        assert secret is not None
        assert len(secret) >= 32
        assert await store.reads.channels.secret() == secret


def a_sink(sink_id: str, *events: str, workflows: str | None = None, max_backlog: int = 1000) -> InsertSink:
    return InsertSink(sink_id, "main", sink_id, types_of(events), workflows, max_backlog, "{}")


async def waiting(store: Store, sink_id: str, now: int = 1000) -> list[tuple[str, str, int | None]]:
    """What a sink is to be told now: runs, types, and the event before it that waits, too."""
    return [(row.run_id, row.type, row.previous) for row in await store.reads.outbox.due(sink_id, now, 100)]


async def numbers_of(store: Store, sink_id: str) -> list[int]:
    return [row.n for row in await store.reads.outbox.due(sink_id, 10**6, 100)]


def sent(sink_id: str, *delivered: int, failed: tuple[FailedDelivery, ...] = (), **more: object) -> NoteDeliveries:
    note = NoteDeliveries(sink_id, "main", f"sink:{sink_id}", WORKER, delivered, failed, (), (), 5000)
    return note._replace(**more)  # type: ignore[arg-type]  # a test's shorthand


async def test_what_a_sink_wants_is_queued_with_what_was_applied(store: Store) -> None:
    """A change that is refused is told to nobody, and what a sink does not want is not told to it."""
    async with opened(store):
        await write(store, a_run("r0"))
        await write(store, a_sink("s1", "run.*", "step.*"))
        await write(store, a_sink("s2", "run.completed", workflows='["other"]'))
        assert await write(store, a_sink("s1", "run.*")) == Moved()
        told = await answers(
            store,
            [a_run("r1"), an_event("r1", 2), an_end("r1", 3)],
            [a_run("r2", "r0")],
            [an_end("r0", 2)._replace(owner="w-2")],
            [a_run("r3", workflow="other"), an_end("r3", 2)],
        )
        assert [type(each) for each in told] == [Applied, Taken, Broken, Applied]
        first = [each for each in await waiting(store, "s1") if each[0] == "r1"]
        assert [type for _, type, _ in first] == ["run.started", "step.completed", "run.completed"]
        assert {run_id for run_id, _, _ in await waiting(store, "s1")} == {"r1", "r3"}
        assert await waiting(store, "s2") == [("r3", "run.completed", None)]


async def test_only_who_has_the_duty_notes_what_became_of_events(store: Store) -> None:
    """One that was replaced may have sent events twice; it must not take back what its successor has noted."""
    async with opened(store):
        await write(store, a_sink("s1", "run.*"))
        await answers(store, [a_run("r1"), an_end("r1", 2)], [a_run("r2"), an_end("r2", 2)])
        numbers = await numbers_of(store, "s1")
        assert await write(store, sent("s1", *numbers)) == Moved()
        assert await write(store, TakeDuty("main", "sink:s1", WORKER, 1000, None)) == Applied()
        assert await write(store, sent("s1", *numbers, worker_id="w-2")) == Moved()
        assert await numbers_of(store, "s1") == numbers
        assert await write(store, sent("s1", *numbers)) == Applied()
        assert await write(store, sent("s1", *numbers)) == Applied()
        sink = await store.reads.outbox.sink("main", "s1")
        assert sink is not None
        assert (sink.delivered, await numbers_of(store, "s1")) == (4, [])


async def test_an_event_is_tried_again_while_later_ones_of_its_run_wait(store: Store) -> None:
    """When it is buried, the first of them is due; replayed, it comes after all that waits."""
    async with opened(store):
        await write(store, a_sink("s1", "run.*", "step.*"))
        await write(store, TakeDuty("main", "sink:s1", WORKER, 1000, None))
        await write(store, a_run("r1"), an_event("r1", 2), an_end("r1", 3))
        started, step, completed = await numbers_of(store, "s1")
        again = (FailedDelivery(started, 1, 3000, "no"),)
        await write(store, sent("s1", failed=again, behind=(step, completed)))
        assert await waiting(store, "s1", 2999) == []
        assert await store.reads.outbox.next_at("s1") == 3000
        assert await waiting(store, "s1", 3000) == [("r1", "run.started", None)]

        await write(store, sent("s1", failed=(FailedDelivery(started, 2, None, "never"),), runs=("r1",)))
        assert await waiting(store, "s1") == [("r1", "step.completed", None)]
        (letter,) = await store.reads.outbox.dead_letters("s1", 0, 9)
        assert (letter.event.type, letter.event.attempts, letter.error, letter.died_at) == (
            *("run.started", 2),
            *("never", 5000),
        )
        assert await store.reads.outbox.backlog("s1") == BacklogRow(2, 1002, 1)
        assert await write(store, ReplayDeadLetters("s1", (started + 90,), 9)) == Applied(0)
        assert await write(store, ReplayDeadLetters("s1", None, 9)) == Applied(1)
        assert await waiting(store, "s1") == [("r1", "step.completed", None), ("r1", "run.started", completed)]
        assert await store.reads.outbox.dead_letters("s1", 0, 9) == []


async def test_a_sink_that_is_behind_gets_nothing_until_its_gap_is_told(store: Store) -> None:
    async with opened(store):
        await write(store, a_sink("s1", "run.started", max_backlog=2))
        assert await write(store, EndGap("s1", "outbox.gap", "{}", 4000)) == Moved()
        await answers(store, *([a_run(f"r{n}")] for n in range(3)))
        await write(store, a_run("r9"))
        assert [run_id for run_id, _, _ in await waiting(store, "s1")] == ["r0", "r1", "r2"]
        assert await write(store, EndGap("s1", "outbox.gap", "{}", 4000)) == Applied()
        assert (await waiting(store, "s1"))[-1] == ("", "outbox.gap", None)


async def test_events_are_made_anew_a_bite_at_a_time(store: Store) -> None:
    """Those that a history holds, in a time; and a sink that is gone takes with it what waits, as it can."""
    async with opened(store):
        for run_id in ("r1", "r2"):
            await write(store, a_run(run_id), an_event(run_id, 2), an_end(run_id, 3))
        await write(store, a_sink("s1", "run.*", "step.completed"))
        assert await write(store, ResendEvents("s1", "", 0, 1500, 1)) == Applied(("r1", 2))
        assert await write(store, ResendEvents("s1", "r1", 0, 9000, 5)) == Applied((None, 3))
        assert await write(store, ResendEvents("nobody", "", 0, 9000, 5)) == Applied((None, 0))
        assert [type for _, type, _ in await waiting(store, "s1")] == [
            *("run.started", "step.completed"),
            *("run.started", "step.completed", "run.completed"),
        ]
        assert await write(store, MoveSink("s1", 2, types_of(("run.*",)), None, 9, "{}")) == Moved()
        assert await write(store, MoveSink("s1", 1, types_of(("run.*",)), None, 9, "{}")) == Applied()
        assert await store.reads.changelog.listener("outbox.steps") is None
        assert await write(store, DeleteSink("s1", 3)) == Applied(True)
        assert await write(store, DeleteSink("s1", 3)) == Applied(False)
        assert await store.reads.changelog.listener("outbox") is None
        assert await waiting(store, "s1") == []


async def test_a_run_that_workers_die_of_is_told_as_held(store: Store) -> None:
    """It is held by the operation that frees the runs of a lost worker, which names none of them."""
    async with opened(store):
        await write(store, a_sink("s1", "run.held"))
        await write(store, a_ripe_run("r1"))
        for n in range(9):
            lost = f"lost-{n}"
            await write(store, RegisterWorker(lost, "main", 99_000, ("default",), "host", 1, 1000), worker=None)
            await write(store, a_run(f"bystander-{n}", owner=lost, workflow="other"), worker=None)
            await write(store, ClaimRuns(lost, "main", ("default",), ("wf",), 10**9, 10, 1), worker=None)
            await write(store, RaiseEpoch(lost, 1), FreeRuns(lost, 1000, 10), worker=None)
        (found,) = await store.reads.outbox.due("s1", 1000, 9)
        assert (found.run_id, found.type, found.held) == ("r1", "run.held", "quarantine")
