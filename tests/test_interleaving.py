"""Transactions that overlap: each bad order of two processes, forced, and what must come of it."""

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.errors import StoreUnavailable
from perdure.kernel.messages import Message
from perdure.stores.answers import (
    APPLIED,
    Answer,
    Applied,
    Closed,
    Committed,
    Failed,
    Fenced,
    Freed,
    Moved,
    Posted,
    StoppedChild,
    Taken,
)
from perdure.stores.operations import (
    Batch,
    ClaimRuns,
    DeleteWorker,
    FreeRuns,
    HoldRun,
    Operation,
    PauseRun,
    RaiseEpoch,
    RegisterWorker,
    ResumeRun,
    TakeMessage,
)
from perdure.stores.records import RunRow
from tests import test_store_conformance as conformance
from tests.simulation.memory import Blocked, Done, MemoryStore, Progress, Tables, Transaction
from tests.test_store_contract import WORKER, a_message, a_park, a_ripe_run, a_run, an_end, an_event
from tests.test_store_families import a_child, a_close, a_live_child, a_stop

OTHER = "w-2"


class World:
    """Tables with two workers, and transactions on them that the test takes step by step."""

    def __init__(self, *operations: Operation) -> None:
        self.tables = Tables()
        self.store = MemoryStore(self.tables)
        workers = [RegisterWorker(w, "main", 99_000, ("default",), "host", 1, 1000) for w in (WORKER, OTHER)]
        assert self.by(None, *workers).run() == Committed({})
        if operations:
            assert isinstance(self.by(None, *operations).run(), Committed)

    def by(self, worker: str | None, *operations: Operation, epoch: int = 1) -> Transaction:
        """A transaction of one group."""
        return self.store.transaction(Batch([operations], worker, epoch))

    def run(self, run_id: str) -> RunRow:
        row = asyncio.run(self.store.reads.run("main", run_id))
        assert row is not None
        return row

    def messages(self, run_id: str) -> list[str]:
        return [message.message_id for message in asyncio.run(self.store.reads.unread(run_id))]


def until(transaction: Transaction, statement: str) -> None:
    """Take steps up to and with the statement of this name."""
    for step in transaction.steps():
        assert isinstance(step, Progress), step
        if step.statement == statement:
            return
    raise AssertionError(f"there is no statement {statement}")


def answer(transaction: Transaction) -> Answer:
    """The end of a transaction that nothing is in the way of."""
    outcome = transaction.run()
    assert isinstance(outcome, Committed), outcome
    return outcome.answers.get(0, Applied())


def takeover(now: int = 1000) -> list[Operation]:
    return [RaiseEpoch(WORKER, 1, 99_000), FreeRuns(WORKER, now, 10)]


def claim(worker: str, limit: int = 10) -> ClaimRuns:
    return ClaimRuns(worker, "main", ("default",), ("wf",), 5000, limit)


# Takeovers


def test_a_takeover_passes_by_a_worker_that_is_just_writing() -> None:
    """It is alive, or its connection will be ended; whoever waited for it would himself be held up for as long."""
    world = World(a_run("r1"))
    zombie = world.by(WORKER, an_event("r1", 2))
    until(zombie, "append_events")
    assert answer(world.by(OTHER, *takeover())) == Moved()
    assert world.run("r1").owner == WORKER
    assert zombie.run() == Committed({})
    assert answer(world.by(OTHER, *takeover())) == Applied(Freed(1))
    assert world.run("r1").owner is None
    assert answer(world.by(OTHER, claim(OTHER))) == Applied(["r1"])
    assert isinstance(world.by(WORKER, an_event("r1", 3)).run(), Fenced)


@pytest.mark.parametrize("becomes", ["committed", "abandoned"])
def test_a_worker_that_raises_its_own_epoch_waits_for_what_it_has_under_way(becomes: str) -> None:
    """It asks which runs are its own right after; whatever it had on its way must be on disk by then, or never be."""
    world = World(a_ripe_run("r1"))
    claiming = world.by(WORKER, claim(WORKER))
    until(claiming, "claim_ripest")
    recovery = world.by(None, RaiseEpoch(WORKER, 1))
    assert recovery.run() == Blocked(claiming)
    assert recovery.step() == Blocked(claiming)
    waited = recovery.is_blocked
    if becomes == "committed":
        assert answer(claiming) == Applied(["r1"])
    else:
        claiming.abandon()
    assert (waited, recovery.is_blocked) == (True, False)
    assert answer(recovery) == Applied()
    assert world.run("r1").owner == (WORKER if becomes == "committed" else None)
    assert world.tables.workers.rows[WORKER].epoch == 2


def test_a_batch_waits_for_a_takeover_under_way_and_is_fenced() -> None:
    """The rescuer was quicker: nothing of the zombie's batch may follow."""
    world = World(a_run("r1"))
    rescue = world.by(OTHER, *takeover())
    until(rescue, "raise_epoch")
    zombie = world.by(WORKER, an_event("r1", 2), an_end("r1", 3))
    assert zombie.run() == Blocked(rescue)
    assert answer(rescue) == Applied(Freed(1))
    assert zombie.run() == Fenced()
    assert world.run("r1").closed_at is None
    assert world.tables.events.rows == {}


def test_a_batch_goes_on_when_the_takeover_it_waits_for_comes_to_nothing() -> None:
    """A rescuer that dies half-way has taken nothing."""
    world = World(a_run("r1"))
    rescue = world.by(OTHER, *takeover())
    until(rescue, "free_runs")
    owner = world.by(WORKER, an_end("r1", 2))
    assert owner.run() == Blocked(rescue)
    rescue.abandon()
    assert answer(owner) == Applied()
    assert world.run("r1").status == "COMPLETED"


def test_of_two_rescuers_one_takes_over() -> None:
    """Both read the same epoch; the second leaves it to the first, and finds it raised if it comes later."""
    world = World(a_run("r1"), a_run("r2"))
    first, second = world.by(OTHER, *takeover()), world.by(None, *takeover(now=2000))
    until(first, "raise_epoch")
    assert answer(second) == Moved()
    assert answer(first) == Applied(Freed(2))
    assert answer(world.by(OTHER, claim(OTHER, limit=1))) == Applied(["r1"])
    assert answer(world.by(None, *takeover(now=2000))) == Moved()
    assert (world.run("r1").owner, world.run("r2").wake_at) == (OTHER, 1000)


def test_a_second_bite_of_a_rescue_leaves_what_was_claimed_meanwhile() -> None:
    """Law 4: what is freed is still the gone worker's when its row is locked, not only when it was read."""
    world = World(a_run("r1"))
    bite = world.by(None, FreeRuns(WORKER, 1000, 10))
    first = world.by(OTHER, *takeover())
    until(first, "free_runs")
    assert bite.run() == Blocked(first)
    assert answer(first) == Applied(Freed(1))
    assert answer(world.by(OTHER, claim(OTHER))) == Applied(["r1"])
    assert answer(bite) == Applied(Freed(0))
    assert world.run("r1").owner == OTHER


def test_a_takeover_leaves_a_run_that_somebody_holds_for_the_next_bite() -> None:
    """A signal that is being sent holds the run's row; all others go on meanwhile, and none is lost."""
    world = World(a_run("r1"), a_run("r2"))
    signal = world.by(None, a_message("r1"))
    until(signal, "post_messages")
    assert answer(world.by(OTHER, *takeover())) == Applied(Freed(1))
    assert (world.run("r1").owner, world.run("r2").owner) == (WORKER, None)
    assert answer(world.by(OTHER, DeleteWorker(WORKER))) == Moved()
    assert answer(signal) == Applied(Posted(1, 1))
    assert answer(world.by(OTHER, FreeRuns(WORKER, 2000, 10))) == Applied(Freed(1))
    assert world.run("r1").owner is None


def test_a_worker_is_not_forgotten_while_its_open_batch_takes_a_run() -> None:
    """Its last run would belong to nobody that anybody looks for."""
    world = World(a_ripe_run("r1"))
    claiming = world.by(WORKER, claim(WORKER))
    until(claiming, "claim_ripest")
    forgetting = world.by(OTHER, DeleteWorker(WORKER))
    assert forgetting.run() == Blocked(claiming)
    assert answer(claiming) == Applied(["r1"])
    assert answer(forgetting) == Moved()
    assert WORKER in world.tables.workers.rows


@pytest.mark.parametrize("becomes", ["committed", "abandoned"])
def test_a_lease_is_not_renewed_while_a_takeover_is_under_way(becomes: str) -> None:
    """The takeover has seen the lease; what becomes of the worker is known when it ends, not before."""
    world = World()
    rescue = world.by(OTHER, RaiseEpoch(WORKER, 1, 99_000))
    until(rescue, "raise_epoch")
    with pytest.raises(StoreUnavailable, match="under way"):
        world.store.presence.renew(WORKER, 1, 123_000)
    if becomes == "committed":
        assert answer(rescue) == Applied()
    else:
        rescue.abandon()
    assert world.store.presence.renew(WORKER, 1, 124_000) == (becomes == "abandoned")
    assert world.tables.workers.rows[WORKER].lease_until == (124_000 if becomes == "abandoned" else 99_000)


def test_a_takeover_is_refused_when_the_lease_was_renewed_since_it_was_read() -> None:
    """A worker that renews its lease lives, whatever its row looked like a moment ago."""
    world = World(a_run("r1"))
    rescue = world.by(OTHER, *takeover())
    until(rescue, "fence")
    assert world.store.presence.renew(WORKER, 1, 123_000)
    assert answer(rescue) == Moved()
    assert world.run("r1").owner == WORKER


# Claims and starts


def test_two_claimers_never_take_the_same_run() -> None:
    """What one has under way the other passes by, without waiting."""
    world = World(*[a_ripe_run(f"r{n}") for n in range(4)])
    first, second = world.by(WORKER, claim(WORKER, 2)), world.by(OTHER, claim(OTHER, 3))
    until(first, "claim_ripest")
    assert answer(second) == Applied(["r2", "r3"])
    assert answer(first) == Applied(["r0", "r1"])
    assert [world.run(f"r{n}").owner for n in range(4)] == [WORKER, WORKER, OTHER, OTHER]


def test_a_claim_does_not_pass_by_what_its_own_transaction_holds() -> None:
    """A message that was known already has locked the run and not changed it."""
    world = World(a_ripe_run("r1"))
    assert answer(world.by(None, a_message("r1"))) == Applied(Posted(1, 1))
    again = world.store.transaction(Batch([[a_message("r1")], [claim(WORKER)]], None, 0))
    assert again.run() == Committed({0: Applied(Posted(1, None)), 1: Applied(["r1"])})


def test_what_an_abandoned_claim_had_taken_is_taken_by_the_next() -> None:
    world = World(a_ripe_run("r1"))
    first = world.by(WORKER, claim(WORKER))
    until(first, "claim_ripest")
    first.abandon()
    assert answer(world.by(OTHER, claim(OTHER))) == Applied(["r1"])


@pytest.mark.parametrize("becomes", ["committed", "abandoned"])
def test_of_two_starts_under_one_id_the_second_waits_for_the_first(becomes: str) -> None:
    """Whether the id is taken is known only when the first has ended."""
    world = World()
    first, second = world.by(WORKER, a_run("r1", "same")), world.by(OTHER, a_run("r2", "same", owner=OTHER))
    until(first, "insert_runs")
    assert second.run() == Blocked(first)
    if becomes == "committed":
        assert answer(first) == Applied()
        taken = answer(second)
        assert isinstance(taken, Taken)
        assert taken.run.run_id == "r1"
        assert list(world.tables.runs.rows) == ["r1"]
    else:
        first.abandon()
        assert answer(second) == Applied()
        assert list(world.tables.runs.rows) == ["r2"]


# Messages


def test_a_post_before_a_park_refuses_it() -> None:
    """The post has the row: the park waits, looks again and finds the counter moved."""
    world = World(a_run("r1"))
    post, park = world.by(OTHER, a_message("r1")), world.by(WORKER, a_park("r1"))
    until(post, "post_messages")
    assert park.run() == Blocked(post)
    assert answer(post) == Applied(Posted(1, 1))
    assert answer(park) == Moved()
    assert world.run("r1").owner == WORKER


def test_a_run_that_its_owner_lets_go_of_just_then_is_paused_all_the_same() -> None:
    """A message would wait for a worker that may never come, and the run would not be held until then."""
    world = World(a_run("r1"))
    pause = world.by(None, PauseRun("r1", "{}", "{}", "pause:1", "{}", 2000))
    until(pause, "hold_free_runs")
    assert isinstance(world.by(WORKER, a_park("r1")).run(), Committed)
    assert answer(pause) == APPLIED
    assert (world.run("r1").status, world.run("r1").held) == ("SUSPENDED", "paused")
    assert world.messages("r1") == []


def test_a_run_that_is_held_just_then_is_resumed_all_the_same() -> None:
    """Else it would stay held, although the one who let it go on was told that nothing is."""
    world = World(a_run("r1"))
    assert isinstance(world.by(None, PauseRun("r1", "{}", "{}", "pause:1", "{}", 2000)).run(), Committed)
    resume = world.by(None, ResumeRun("r1", 3000, "{}", "resume:1"))
    until(resume, "resume_run")
    hold = (HoldRun("r1", WORKER, "paused", "{}", 2500, 1), TakeMessage(1, 0))
    assert isinstance(world.by(WORKER, *hold).run(), Committed)
    assert world.run("r1").held == "paused"
    assert answer(resume) == APPLIED
    assert (world.run("r1").held, world.run("r1").owner) == (None, None)


def test_a_post_after_a_park_makes_the_run_ripe() -> None:
    """The park has the row: the post waits and sets the time to wake on what was parked."""
    world = World(a_run("r1"))
    park, post = world.by(WORKER, a_park("r1", wake_at=99_000)), world.by(OTHER, a_message("r1"))
    until(park, "park_runs")
    assert post.run() == Blocked(park)
    assert answer(park) == Applied()
    assert answer(post) == Applied(Posted(1, 1))
    row = world.run("r1")
    assert (row.owner, row.wake_at, row.messages) == (None, 1500, 1)
    assert answer(world.by(OTHER, claim(OTHER))) == Applied(["r1"])


def test_a_post_that_comes_after_an_end_is_told_so() -> None:
    """A message in the inbox of a closed run would be acknowledged and never read."""
    world = World(a_run("r1"))
    end, post = world.by(WORKER, an_end("r1", 2)), world.by(OTHER, a_message("r1"))
    until(end, "end_runs")
    assert post.run() == Blocked(end)
    assert answer(end) == Applied()
    assert answer(post) == Closed("COMPLETED")
    assert (world.messages("r1"), world.run("r1").wake_at) == ([], None)


def test_an_end_waits_for_a_post_and_closes_the_run_behind_it() -> None:
    world = World(a_run("r1"))
    post, end = world.by(OTHER, a_message("r1")), world.by(WORKER, an_end("r1", 2))
    until(post, "post_messages")
    assert end.run() == Blocked(post)
    assert answer(post) == Applied(Posted(1, 1))
    assert answer(end) == Applied()
    row = world.run("r1")
    assert (row.status, row.messages, row.wake_at) == ("COMPLETED", 1, None)


def test_messages_may_become_visible_in_another_order_than_their_numbers() -> None:
    """Whoever remembers the highest number it saw would miss the lower one that comes later."""
    world = World(a_run("r1"), a_run("r2"))
    first, second = world.by(None, a_message("r1")), world.by(None, a_message("r2"))
    until(first, "post_messages")
    assert answer(second) == Applied(Posted(2, 1))
    assert asyncio.run(world.store.reads.last_message()) == 2
    assert answer(first) == Applied(Posted(1, 1))
    found, last = asyncio.run(world.store.reads.new_messages(WORKER, 0))
    assert ([message.number for _, message, _ in found if isinstance(message, Message)], last) == ([1, 2], 2)


def test_numbers_of_what_was_rolled_back_are_not_given_again() -> None:
    world = World(a_run("r1"))
    lost = world.by(None, a_message("r1"))
    until(lost, "post_messages")
    lost.abandon()
    assert answer(world.by(None, a_message("r1"))) == Applied(Posted(2, 1))


def test_the_same_message_sent_twice_at_once_is_there_once() -> None:
    world = World(a_run("r1"))
    first, second = world.by(None, a_message("r1")), world.by(None, a_message("r1"))
    until(first, "count_posted")
    assert second.run() == Blocked(first)
    assert answer(first) == Applied(Posted(1, 1))
    assert answer(second) == Applied(Posted(1, None))
    assert (world.messages("r1"), world.run("r1").messages) == (["m-1"], 1)


# Ends from outside


def test_a_close_and_a_claim_of_a_free_run_exclude_each_other() -> None:
    world = World(a_ripe_run("r1"), a_ripe_run("r2"))
    claiming, close = world.by(WORKER, claim(WORKER, 1)), world.by(None, a_close("r1"))
    until(claiming, "claim_ripest")
    assert close.run() == Blocked(claiming)
    assert answer(claiming) == Applied(["r1"])
    assert answer(close) == Moved()
    close = world.by(None, a_close("r2"))
    until(close, "close_free_run")
    assert answer(world.by(WORKER, claim(WORKER))) == Applied([])
    assert answer(close) == Applied()
    assert (world.run("r2").status, world.run("r2").owner) == ("TERMINATED", None)


def test_a_child_that_is_not_committed_is_not_asked_to_stop() -> None:
    """So no store may let somebody close a parent while its owner's batch is open; the next test says how."""
    world = World(a_run("p", owner=None, status="SUSPENDED"))
    start = world.by(WORKER, a_child("c"))
    until(start, "insert_rich_runs")
    assert answer(world.by(None, a_close("p"), a_stop("p"))) == Applied()
    assert answer(start) == Applied()
    assert world.run("c").closed_at is None


def test_whoever_takes_a_parent_over_sees_the_child_its_owner_was_starting() -> None:
    """The fence orders them: nobody takes over while the batch is open, and what follows sees its child."""
    world = World(a_run("p"))
    start = world.by(WORKER, a_live_child("c"))
    until(start, "insert_rich_runs")
    assert answer(world.by(OTHER, *takeover())) == Moved()
    assert answer(world.by(None, a_close("p"), a_stop("p"))) == Moved()
    assert answer(start) == Applied()
    assert answer(world.by(OTHER, *takeover())) == Applied(Freed(2))
    assert answer(world.by(OTHER, a_close("p"), a_stop("p"))) == Applied([StoppedChild("c", 1, "CancelRequest")])
    assert world.run("p").status == "TERMINATED"


def test_a_child_that_ends_while_it_is_to_be_stopped_is_not_asked() -> None:
    world = World(a_run("p"), a_live_child("c", parent="p"))
    end, stop = world.by(WORKER, an_end("c", 2)), world.by(OTHER, a_stop("p"))
    until(end, "end_runs")
    assert stop.run() == Blocked(end)
    assert answer(end) == Applied()
    assert answer(stop) == Applied()
    assert world.messages("c") == []


# Deadlocks and deaths


def test_a_circle_of_waiting_transactions_is_broken_and_the_others_go_on() -> None:
    """One of them is given up with nothing written, and may be tried again."""
    world = World(a_run("r1"), a_run("r2"))
    first = world.store.transaction(Batch([[a_message("r1")], [a_park("r2")]], None, 0))
    second = world.store.transaction(Batch([[a_message("r2")], [a_park("r1", wake_at=7)]], None, 0))
    until(first, "count_posted")
    until(second, "count_posted")
    assert first.run() == Blocked(second)
    given_up = second.run()
    assert isinstance(given_up, Failed)
    assert "deadlock" in str(given_up.error)
    assert second.step() == Done(given_up)
    assert first.run() == Committed({0: Applied(Posted(1, 1))})
    assert (world.run("r1").messages, world.run("r2").messages, world.run("r2").owner) == (1, 0, None)
    again = world.store.transaction(second.batch)
    assert again.run() == Committed({0: Applied(Posted(3, 1)), 1: Moved()})


def test_a_circle_of_three_is_found() -> None:
    world = World(a_run("r1"), a_run("r2"), a_run("r3"))
    pairs = [("r1", "r2"), ("r2", "r3"), ("r3", "r1")]
    ring = [world.store.transaction(Batch([[a_message(a)], [a_park(b)]], None, 0)) for a, b in pairs]
    for transaction in ring:
        until(transaction, "count_posted")
    assert ring[0].run() == Blocked(ring[1])
    assert ring[1].run() == Blocked(ring[2])
    assert isinstance(ring[2].run(), Failed)
    assert ring[1].run() == Committed({0: Applied(Posted(2, 1))})
    assert ring[0].run() == Committed({0: Applied(Posted(1, 1)), 1: Moved()})


def test_who_waits_for_what_was_undone_is_in_no_circle() -> None:
    """A group that is undone alone gives its locks back; whoever waited for them may go on."""
    world = World(a_run("r1"), a_run("r2"), a_run("r3"))
    first = world.store.transaction(Batch([[a_park("r1"), a_park("r3", messages=9)], [a_park("r2")]], None, 0))
    second = world.store.transaction(Batch([[a_message("r2")], [a_park("r1", wake_at=7)]], None, 0))
    # All three together; and since the second is refused, group by group, of which this is the first.
    assert [first.step() for _ in range(2)] == [Progress("park_runs")] * 2
    until(second, "count_posted")
    assert second.run() == Blocked(first)
    assert first.run() == Blocked(second)
    assert second.run() == Committed({0: Applied(Posted(1, 1))})
    assert first.run() == Committed({0: Moved(), 1: Moved()})


EVERYTHING: list[Operation] = [
    a_run("new"),
    a_child("rich"),
    a_message("r1"),
    an_event("r1", 2),
    TakeMessage(1, 2),
    claim(WORKER),
    RaiseEpoch(OTHER, 1),
    a_stop("p"),
    a_park("r2"),
    an_end("r1", 3),
]


def test_a_transaction_abandoned_at_any_statement_leaves_nothing() -> None:
    """A process may die anywhere."""
    world = World(a_run("r1"), a_run("r2"), a_ripe_run("r3"), a_live_child("c"))
    assert answer(world.by(None, a_message("r1", "before"))) == Applied(Posted(1, 1))
    before, version = world.tables.dump(), world.tables.version
    dying = world.by(WORKER, *EVERYTHING)
    total = sum(isinstance(step, Progress) for step in dying.steps())
    assert total > 10
    world = World(a_run("r1"), a_run("r2"), a_ripe_run("r3"), a_live_child("c"))
    answer(world.by(None, a_message("r1", "before")))
    for statements in range(total + 1):
        dying = world.by(WORKER, *EVERYTHING)
        assert all(isinstance(dying.step(), Progress) for _ in range(statements))
        dying.abandon()
        assert not dying.is_open
        assert (world.tables.dump(), world.tables.version, world.tables.open) == (before, version, {})
    assert isinstance(answer(world.by(WORKER, *EVERYTHING)), Applied)


def test_nothing_is_seen_before_the_commit_and_then_all_of_it_at_once() -> None:
    world = World(a_run("r1"), a_run("r2"))
    before = world.tables.dump()
    batch = world.by(WORKER, an_event("r1", 2), a_message("r2"), an_end("r1", 3))
    seen = []
    for step in batch.steps():
        seen.append(world.tables.dump() == before)
        assert isinstance(step, Progress) or seen == [True] * (len(seen) - 1) + [False]
    assert (world.run("r1").status, world.messages("r2")) == ("COMPLETED", ["m-1"])


def test_a_commit_that_would_wait_for_ever_fails_at_once() -> None:
    """Without a scheduler nobody can end what it waits for."""
    world = World(a_run("r1"))
    open_one = world.by(WORKER, a_park("r1"))
    until(open_one, "park_runs")
    told: list[object] = []
    world.store.commit(Batch([[a_message("r1")]], None, 0), told.append)
    assert isinstance(told[0], Failed)
    assert list(world.tables.open) == [open_one]
    assert answer(open_one) == Applied()


# Any order


def finish(transactions: list[Transaction], order: list[int]) -> None:
    """Take steps in the given order, over and over, until all have ended; those that wait are asked again."""
    for _ in range(200):
        for place in order:
            step = transactions[place % len(transactions)].step()
            assert not isinstance(step, Blocked) or step.by in step.by.tables.open
        if not any(transaction.is_open for transaction in transactions):
            return
        order = [*order, *range(len(transactions))]
    raise AssertionError("some wait for ever")


def indexes(tables: Tables) -> list[object]:
    """All ways by which rows are looked for, without what is empty by now."""
    runs = tables.runs
    ripe = [
        {(queue, priority): level for queue, levels in index.items() for priority, level in levels.items() if level}
        for index in (runs.ripe, runs.suspected)
    ]
    grouped = (runs.owned, runs.children, tables.inbox.by_run, tables.events.by_run, tables.attempts.by_run)
    keys = [{key: sorted(found) for key, found in group.items() if found} for group in grouped]
    keys.append({key: sorted(found) for key, found in tables.progress.by_run.items()})
    return [*ripe, *keys, sorted(runs.closing), sorted(runs.held_back), runs.ids, tables.inbox.numbers]


def built_anew(tables: Tables) -> Tables:
    """The same rows, published one by one."""
    fresh = Tables()
    fresh.runs.places = tables.runs.places
    for name in ("runs", "latest", "events", "inbox", "message_ids", "attempts", "progress", "workers"):
        for key, row in getattr(tables, name).rows.items():
            getattr(fresh, name).publish(key, row)
    return fresh


@settings(max_examples=150, derandomize=True, database=None, deadline=None)
@given(st.lists(conformance.batches, min_size=2, max_size=6), st.lists(st.integers(0, 5), min_size=1, max_size=40))
def test_in_any_order_every_transaction_ends_and_nothing_is_left_held(batches: list[Batch], order: list[int]) -> None:
    """Neither a wait nor a circle of waits may outlast the others; what is found by an index is what is there."""
    store = MemoryStore()
    assert isinstance(store.transaction(conformance.BEGIN).run(), Committed)
    finish([store.transaction(batch) for batch in batches], order)
    tables = store.tables
    assert (tables.open, [sharers for sharers in tables.workers.shared.values() if sharers]) == ({}, [])
    every = (tables.runs, tables.latest, tables.events, tables.inbox, tables.message_ids, tables.attempts)
    assert [table.held for table in (*every, tables.progress, tables.workers, tables.deaths, tables.judged)] == [
        {}
    ] * 10
    assert indexes(tables) == indexes(built_anew(tables))
    assert {(m.run_id, m.message_id): m.number for m in tables.inbox.rows.values()} == tables.message_ids.rows
    latest = {(tables.runs.rows[r].namespace, tables.runs.rows[r].workflow_id): r for r in tables.latest.rows.values()}
    assert latest == tables.latest.rows
