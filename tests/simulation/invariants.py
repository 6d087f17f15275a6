"""The invariants: what must hold after every write, and what must never have happened.

In:   every batch that was written, and what is on disk after it.
Out:  Violation, with the number of the invariant and the run it is about.

The numbers are those of the list in `docs/simulation.md`. Knows nothing of the engine's
memory: only what is on disk counts, and who wrote it.
"""

import json
from collections import Counter
from collections.abc import Iterable
from typing import Any, NamedTuple

from perdure.kernel.quarantine import is_suspect
from perdure.stores.answers import Applied, Committed
from perdure.stores.operations import Batch, ClaimRuns, ExpectOwner, Fence, HoldRun, ParkRun, ResumeRun, StopChildren
from tests.simulation.programs import NOT_BEGUN, sim_enter, sim_enter_slowly, sim_once
from tests.simulation.sight import Memory, Seen, SeenEntry, SeenEvent, SeenMessage, SeenRun, look
from tests.simulation.simulator import Database, SqliteDatabase

CLOSED = {"COMPLETED", "FAILED", "CANCELLED", "TERMINATED", "TIMED_OUT", "CONTINUED"}
OUTCOMES = {"ActivityCompleted", "ActivityFailed"}
TRANSACTIONAL = {sim_enter.name, sim_enter_slowly.name}
_SENT = {"SignalSent", "DeferredResult", "DeferredFailure", "RequestSent"}
NOTES = {"CancelRequested", "Patched", "TimeoutReached"}


class Violation(Exception):  # noqa: N818 - it names the trouble
    """Something happened that must never happen."""

    def __init__(self, invariant: str, trouble: str) -> None:
        super().__init__(invariant, trouble)
        self.invariant = invariant
        self.trouble = trouble

    def __str__(self) -> str:
        return f"{self.invariant}: {self.trouble}"


def _first(now: Seen, run: SeenRun) -> str:
    """The first of the runs that this one continues, or it itself."""
    while run.continued_from is not None and run.forked_from is None:
        run = now.runs[run.continued_from]
    return run.run_id


class Writers(NamedTuple):
    """In whose name a batch was written: that of its process, and those over a server, each in groups of its own."""

    epochs: dict[str, int]
    of_runs: dict[str, str]
    # Those who may have taken runs in it.
    claimers: set[str]


def _writers(batch: Batch, outcome: Committed) -> Writers:
    found = Writers({}, {}, set())
    if batch.worker_id is not None:
        found.epochs[batch.worker_id] = batch.epoch
        found.claimers.add(batch.worker_id)
    for number, group in enumerate(batch.groups):
        fence = group[0] if group else None
        if isinstance(fence, Fence) and isinstance(outcome.answers.get(number, Applied()), Applied):
            found.epochs[fence.worker_id] = fence.epoch
            for operation in group:
                if type(operation) is ClaimRuns:
                    found.claimers.add(fence.worker_id)
                elif isinstance(operation, ExpectOwner | ParkRun | HoldRun):
                    found.of_runs[operation.run_id] = fence.worker_id
    return found


class Witness:
    """Sees every write and remembers what was on disk before it."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._memory = Memory()
        self.seen = Seen({}, [], {}, [], {}, {}, [], [])
        self.histories: dict[str, list[SeenEvent]] = {}
        self.outcomes: set[tuple[str, str]] = set()
        self.attempts: dict[tuple[str, str], int] = {}
        self.begun_once: set[tuple[str, str]] = set()
        # The runs of which an attempt has begun.
        self.begun: set[str] = set()
        # What transactional activities have recorded as done, as their rows have it.
        self._entered: list[SeenEntry] = []
        self._last_event = 0
        self._last_message = 0
        self._workers: dict[str, int] = {}
        self._remote: set[str] = set()
        self._writers = Writers({}, {}, set())
        # The epoch of its owner when a run came into its hands.
        self._owned_at: dict[str, int] = {}
        # The runs that were ever taken from a worker who was lost.
        self.lost: set[str] = set()

    def wrote(self, batch: Batch, outcome: object) -> None:
        """A batch was written, or was not: whatever is on disk now must follow from what was there."""
        before, now = self.seen, look(self._database, self._last_event, self.histories, self._memory)
        if not isinstance(outcome, Committed):
            return
        self.seen = now
        self._writers = _writers(batch, outcome)
        self._check_fence(before)
        self._check_workers(batch, now)
        self._check_events(batch, before, now)
        self._check_messages(before, now)
        self._check_runs(batch, before, now)
        self._check_attempts(before, now)
        if now.snapshots != before.snapshots:
            self._check_snapshots(now)
        if len(now.values) != len(before.values):
            self._check_streams(now)
        self._check_entries(now)

    # What users write

    def _check_entries(self, now: Seen) -> None:
        """The rows of transactional activities are those of the outcomes that are recorded, each once."""
        if sorted(now.entries) != sorted(self._entered):
            without = sorted((Counter(now.entries) - Counter(self._entered)).elements())
            missing = sorted((Counter(self._entered) - Counter(now.entries)).elements())
            raise Violation("I52", f"rows without an outcome: {without}; outcomes without a row: {missing}")

    # What runs show and publish

    def _check_snapshots(self, now: Seen) -> None:
        for snapshot in now.snapshots.values():
            last = 1 + len(self.histories.get(snapshot.run_id, ()))
            if snapshot.seq > last:
                raise Violation(
                    "I50", f"run {snapshot.run_id} shows what it was after event {snapshot.seq}, and has {last}"
                )

    def _check_streams(self, now: Seen) -> None:
        """Values are numbered without a gap; each of the workflow is there once, those of an attempt in order."""
        last: dict[tuple[str, str], int] = {}
        told: dict[tuple[str, int, int], int] = {}
        said: set[str] = set()
        for value in now.values:
            run, stream = now.runs[value.run_id], (value.run_id, value.name)
            if value.n != last.get(stream, value.n - 1) + 1 or (
                stream not in last and value.n > 1 and not run.continued_from
            ):
                raise Violation("I51", f"{value} follows {last.get(stream)}")
            last[stream] = value.n
            if value.name == "sim-said":
                key = f"{_first(now, run)} {value.body}"
                if key in said:
                    raise Violation("I51", f"{value} was published before")
                said.add(key)
            else:
                number, count, attempt = json.loads(value.body)
                of_attempt = (_first(now, run), number, value.attempt)
                if told.get(of_attempt, 0) != count or value.attempt < attempt:
                    raise Violation("I51", f"{value} follows {told.get(of_attempt, 0)} values of its attempt")
                told[of_attempt] = count + 1

    def shown_by(self, run: SeenRun) -> int:
        """How many parts a run says it has done."""
        snapshot = self.seen.snapshots.get(run.run_id)
        return -1 if snapshot is None else int(json.loads(snapshot.body)["values"]["done"])

    def said_by(self, run: SeenRun) -> set[int]:
        """What the workflow of a run has published itself."""
        return {int(value.body) for value in self.seen.values if value[:2] == (run.run_id, "sim-said")}

    # Workers and epochs

    def _check_fence(self, before: Seen) -> None:
        """Whatever is written in a worker's name is written under the epoch that it has at that moment."""
        for worker_id, epoch in self._writers.epochs.items():
            worker = before.workers.get(worker_id)
            if worker is None or worker.epoch != epoch:
                raise Violation("I14", f"something was written under epoch {epoch} of {worker_id}: {worker}")

    def _check_workers(self, batch: Batch, now: Seen) -> None:
        for worker_id, worker in now.workers.items():
            last = self._workers.get(worker_id, 0)
            if worker.epoch > last and batch.worker_id is None and not self.is_remote(worker_id):
                # It raised its own: what it has stays its own.
                mine = [run.run_id for run in now.runs.values() if run.owner == worker_id]
                self._owned_at |= dict.fromkeys(mine, worker.epoch)
            if worker.epoch < last:
                raise Violation("I15", f"the epoch of worker {worker_id} went back from {last} to {worker.epoch}")
            self._workers[worker_id] = worker.epoch

    def registered(self, worker_id: str, *, is_remote: bool) -> None:
        """A worker begins; its id must be new."""
        # A server that does not know whether it has registered one does so again.
        if worker_id in self._workers and not (is_remote and worker_id in self.seen.workers):
            raise Violation("I15", f"the worker id {worker_id} was used before")
        if is_remote:
            self._remote.add(worker_id)

    def is_remote(self, worker_id: str) -> bool:
        """Whether a worker works over a server: then only others raise its epoch."""
        return worker_id in self._remote

    # Events

    def _check_events(self, batch: Batch, before: Seen, now: Seen) -> None:
        for event in now.events:
            if event.id <= self._last_event:
                raise Violation("I02", f"an event was put before others: {event}")
            self._last_event = event.id
            self._check_event(batch, before, now, event)
            self.histories.setdefault(event.run_id, []).append(event)

    def _check_event(self, batch: Batch, before: Seen, now: Seen, event: SeenEvent) -> None:
        history = self.histories.get(event.run_id, ())
        was, run = before.runs.get(event.run_id), now.runs.get(event.run_id)
        if event.seq != len(history) + 2:
            raise Violation("I02", f"event {event.seq} of run {event.run_id} follows {len(history) + 1}")
        if run is None:
            raise Violation("I04", f"an event of run {event.run_id}, which is not there")
        if event.at < (run.first_at or run.created_at):
            raise Violation("I02", f"event {event.seq} of run {event.run_id} is older than its start")
        if was is not None and was.closed_at is not None:
            raise Violation("I11", f"run {event.run_id} was closed, and got event {event.seq}")
        if history and event.at < history[-1].at:
            raise Violation("I02", f"event {event.seq} of run {event.run_id} is older than the one before")
        writer = self._writers.of_runs.get(event.run_id, batch.worker_id)
        if was is not None and was.owner != writer:
            raise Violation("I14", f"{writer} wrote an event of run {event.run_id}, owned by {was.owner}")
        if was is None and run.forked_from is not None:
            self._check_copy(run, event)
            self.outcomes.add((event.run_id, event.place))
            return
        self._check_fact(now, event)

    def _check_copy(self, run: SeenRun, event: SeenEvent) -> None:
        """What a run has from another one is what that has: of a fork the beginning, of a retry all but what failed."""
        origin = self.histories.get(run.forked_from or "", ())
        numbers = [each.seq for each in origin if each[3:] == event[3:]]
        is_right = event.seq in numbers or (run.fork_kind == "retry" and any(seq > event.seq for seq in numbers))
        if not is_right or (event.seq <= (run.forked_at or 0) and event.seq not in numbers):
            raise Violation("I55", f"event {event.seq} of run {run.run_id} is not one of run {run.forked_from}")

    def _check_fact(self, now: Seen, event: SeenEvent) -> None:
        if event.place:
            key = (event.run_id, event.place)
            if key in self.outcomes:
                raise Violation("I13", f"a second outcome at {event.place!r} of run {event.run_id}")
            self.outcomes.add(key)
        if event.kind == "ActivityCompleted":
            body = json.loads(event.body)
            if body["name"] in TRANSACTIONAL:
                self._entered.append(SeenEntry(f"{event.run_id}/{event.place}", body["arguments"]["number"]))
        if event.kind == "TimerFired":
            fire_at = json.loads(event.body)["fire_at"]
            if event.at < fire_at:
                raise Violation(
                    "I20", f"the timer {event.place!r} of run {event.run_id} fired {fire_at - event.at} ms early"
                )
        if event.kind in {"SignalReceived", "RequestReceived", "ChildCompleted", "ChildFailed"}:
            self._check_received(now, event)

    def _check_received(self, now: Seen, event: SeenEvent) -> None:
        body = json.loads(event.body)
        if event.kind in {"SignalReceived", "RequestReceived"}:
            taken = [
                m
                for m in now.messages.values()
                if m.message_id == body["message_id"]
                and m.taken_by == event.seq
                and _has_past_of(now, m.run_id, event.run_id)
            ]
            if len(taken) != 1:
                raise Violation("I26", f"event {event.seq} of run {event.run_id} has no message of its own: {taken}")
            due_at = json.loads(taken[0].body).get("due_at")
            if due_at is not None and event.at < due_at:
                raise Violation("I20", f"run {event.run_id} received a signal {due_at - event.at} ms early")
            self.received_delayed |= due_at is not None
            if due_at is None:
                self._check_turn(now, event, taken[0], body["name"])
        child = now.runs.get(body["run_id"]) if "run_id" in body else None
        if event.kind == "ChildCompleted" and child is not None and not _came_to(child, body["result"]):
            raise Violation("I34", f"run {event.run_id} was told another result than its child {child.run_id} has")
        if event.kind == "ChildFailed" and child is not None and child.status not in CLOSED - {"COMPLETED"}:
            raise Violation("I34", f"run {event.run_id} was told that {child.run_id} failed, but it is {child.status}")

    def _check_turn(self, now: Seen, event: SeenEvent, taken: SeenMessage, name: str) -> None:
        """Signals of one name are received in the order in which they were sent."""
        for other in now.messages.values():
            if (
                other.run_id == event.run_id
                and other.kind == taken.kind
                and other.number < taken.number
                and other.taken_by is None
                and json.loads(other.body)["name"] == name
                and "due_at" not in json.loads(other.body)
            ):
                raise Violation("I26", f"run {event.run_id} received message {taken.number} before {other.number}")

    # Messages

    def _check_messages(self, before: Seen, now: Seen) -> None:
        for number, message in now.messages.items():
            was = before.messages.get(number)
            if was is None:
                self._check_new_message(message)
            elif was.taken_by is not None and message.taken_by != was.taken_by:
                raise Violation("I26", f"message {number} was taken by event {was.taken_by}, now by {message.taken_by}")
            else:
                _check_kept(was, message)
            if message.taken_by == 0 and message.kind not in {"PauseRequest", "ResumeRequest"}:
                raise Violation("I26", f"message {number} was set aside, though nothing is wrong with it")
            run = now.runs[message.run_id]
            is_known = was is None and run.forked_from is not None and run.continued_from is not None
            if message.taken_by and not is_known and (was is None or was.taken_by is None):
                # It may have gone on to the next generation in the same moment.
                history = self.histories.get(message.run_id if was is None else was.run_id, ())
                if message.taken_by > len(history) + 1:
                    raise Violation(
                        "I26", f"message {number} was taken by event {message.taken_by}, which is not there"
                    )
                fact = history[message.taken_by - 2]
                if fact.kind not in _BECOMES[message.kind]:
                    raise Violation("I26", f"message {number}, {message.kind}, was taken by {fact.kind}")
        if now.messages.keys() < before.messages.keys():
            raise Violation("I26", f"messages are gone: {before.messages.keys() - now.messages.keys()}")

    def _check_new_message(self, message: SeenMessage) -> None:
        # Where transactions overlap, numbers become visible in another order than they are taken in.
        if message.number <= self._last_message and isinstance(self._database, SqliteDatabase):
            raise Violation("I26", f"message {message.number} came after {self._last_message}")
        self._last_message = max(message.number, self._last_message)

    # Runs

    def _check_runs(self, batch: Batch, before: Seen, now: Seen) -> None:
        if before.runs.keys() - now.runs.keys():
            raise Violation("I01", f"runs are gone: {before.runs.keys() - now.runs.keys()}")
        unread = _unread(now.messages.values())
        for run_id, run in now.runs.items():
            was = before.runs.get(run_id)
            if was != run:
                self._check_change(batch, before, was, run, now)
            if run.closed_at is None:
                self._check_open(run, unread.get(run_id, ()), now)
        self._check_ids(now)

    def _check_change(self, batch: Batch, before: Seen, was: SeenRun | None, run: SeenRun, now: Seen) -> None:
        if was is not None and was.closed_at is not None and was._replace(is_latest=0) != run._replace(is_latest=0):
            raise Violation("I11", f"run {run.run_id} was closed, and changed from {was} to {run}")
        if was is None and run.forked_from is not None:
            self._check_forked(run, before, now)
        self._check_owner(batch, was, run)
        if was is not None and was.held == "paused" and run.held != "paused" and run.closed_at is None:
            self._check_resumed(batch, run)
        if (run.closed_at is not None) != (run.status in CLOSED):
            raise Violation("I05", f"run {run.run_id} is {run.status} and closed at {run.closed_at}")
        if run.closed_at is not None and (was is None or was.closed_at is None):
            self._check_end(batch, was, run, now)

    def _check_resumed(self, batch: Batch, run: SeenRun) -> None:
        """Only somebody who says so lets a paused run go on, and with it the activities that were held for it."""
        resumed = {op.run_id for group in batch.groups for op in group if type(op) is ResumeRun}
        if run.run_id not in resumed and not (run.is_task and run.parent_id in resumed):
            raise Violation("I58", f"run {run.run_id} was paused, and goes on though nobody said so")

    def _check_forked(self, run: SeenRun, before: Seen, now: Seen) -> None:
        """A run has one retry; whatever was sent to a run is there once in one that is made from it, taken or not."""
        retries = [r.run_id for r in now.runs.values() if r.forked_from == run.forked_from and r.fork_kind == "retry"]
        if len(retries) > 1:
            raise Violation("I55", f"run {run.forked_from} was retried as {retries}")
        # What its origin has by now, and what it had before it went on as another run in this transaction.
        sent = {**before.messages, **{m.number: m for m in now.messages.values() if m.run_id == run.forked_from}}
        origin = [sent[n] for n in sorted(sent) if sent[n].run_id == run.forked_from and sent[n].kind in _SENT]
        found = [m for m in now.messages.values() if m.run_id == run.run_id]
        copied = {m.message_id for m in found}
        was = before.runs.get(run.forked_from or "")
        if was is None or was.closed_at is None:
            # What comes for an open run in the same transaction may be copied or not: that run has it in any case.
            origin = [m for m in origin if m.number in before.messages or m.message_id in copied]
        if [m.message_id for m in found] != [m.message_id for m in origin]:
            raise Violation("I56", f"run {run.run_id} has {found}, and was made from one that has {origin}")
        history = self.histories.get(run.run_id, ())
        for old, new in zip(origin, found, strict=True):
            fact = self._taken_as(old)
            if old.taken_by and fact is None and new.taken_by == old.taken_by:
                # It was taken by a run that this one's origin continues.
                continue
            kept = [e.seq for e in history if fact is not None and e[3:] == fact[3:]]
            if ([new.taken_by] if new.taken_by else []) != kept:
                raise Violation("I56", f"{new} was {old}, which became {fact}; that is event {kept} here")

    def _taken_as(self, message: SeenMessage) -> SeenEvent | None:
        """The event that a message has become in its run, if it was there that it was taken."""
        found = [event for event in self.histories.get(message.run_id, ()) if event.seq == message.taken_by]
        if not found or "message_id" not in (body := json.loads(found[0].body)):
            return found[0] if found and message.message_id.startswith("deferred:") else None
        return found[0] if body["message_id"] == message.message_id else None

    def _check_owner(self, batch: Batch, was: SeenRun | None, run: SeenRun) -> None:
        owner, before = run.owner, None if was is None else was.owner
        if owner == before:
            return
        writer = self._writers.of_runs.get(run.run_id, batch.worker_id)
        if before not in {None, writer} and self._workers[before or ""] <= self._owned_at[run.run_id]:
            raise Violation("I19", f"run {run.run_id} was taken from {before}, whose epoch was not raised")
        if before not in {None, writer}:
            self.lost.add(run.run_id)
        if owner is not None:
            if owner not in self._writers.claimers:
                raise Violation("I16", f"run {run.run_id} was given to {owner} by {self._writers.claimers}")
            self._owned_at[run.run_id] = self._writers.epochs[owner]

    def _check_end(self, batch: Batch, was: SeenRun | None, run: SeenRun, now: Seen) -> None:
        last = len(self.histories.get(run.run_id, ())) + 2
        if run.last_seq != last:
            raise Violation("I03", f"run {run.run_id} ended with event {run.last_seq}, after event {last - 1}")
        if run.owner is not None or run.wake_at is not None:
            raise Violation(
                "I11", f"run {run.run_id} is closed, but owned by {run.owner} or to be woken at {run.wake_at}"
            )
        self._check_undone(was, run, now)
        if run.is_task and NOT_BEGUN in (run.outcome or "") and run.run_id in self.begun:
            raise Violation("I53", f"the task {run.run_id} had begun, and its caller is told that it had not")
        parent = now.runs.get(run.parent_id or "")
        if run.parent_id is not None and run.status != "CONTINUED" and parent is not None:
            told = [
                m for m in now.messages.values() if m.run_id == run.parent_id and m.message_id == f"child:{run.run_id}"
            ]
            # A parent that has ended is not told, nor one that called the child off before it had begun.
            is_called_off = any(
                type(op) is StopChildren and op.run_id == run.parent_id for group in batch.groups for op in group
            )
            if not told and parent.closed_at is None and not is_called_off:
                raise Violation("I34", f"run {run.run_id} ended, and its parent {run.parent_id} was not told")
        if run.status == "CONTINUED":
            heirs = [other for other in now.runs.values() if other.continued_from == run.run_id]
            if len(heirs) != 1:
                raise Violation("I34", f"run {run.run_id} is continued by {heirs}")

    def _check_undone(self, was: SeenRun | None, run: SeenRun, now: Seen) -> None:
        """What a run has booked is undone newest first and once, unless it ended well or had no time for it."""
        booked, undone = self._numbers(run.run_id, "sim_book"), self._numbers(run.run_id, "sim_unbook")
        wanted = [] if run.status == "COMPLETED" else booked[::-1]
        is_right = undone == wanted
        if not is_right and self._may_leave_undone(was, run, now):
            is_right = undone == wanted[: len(undone)]
        if not is_right:
            raise Violation("I47", f"run {run.run_id} has booked {booked} and undone {undone}; it is {run.status}")

    def _numbers(self, run_id: str, activity: str) -> list[int]:
        """What the activities of this name were given, in the order of their ends."""
        bodies = [json.loads(event.body) for event in self.histories.get(run_id, ()) if event.kind in OUTCOMES]
        return [body["arguments"]["number"] for body in bodies if body["name"] == activity]

    def _may_leave_undone(self, was: SeenRun | None, run: SeenRun, now: Seen) -> bool:
        """Whether a run ended without the time to undo everything, or without anybody who knew that it has to."""
        if run.status == "TIMED_OUT":
            is_known = was is not None and '"state":"waiting"' in (was.undo or "")
            cannot_go_on = was is not None and was.held in {"mismatch", "quarantine"}
            # A server ends what a worker over it has not ended in time, and does not know its code.
            is_remote = was is not None and was.owner is not None and self.is_remote(was.owner)
            return is_remote or (was is not None and was.owner is None and (cannot_go_on or not is_known))
        return run.status == "TERMINATED" or (run.status == "CANCELLED" and self.has_deadline(run, now))

    def has_deadline(self, run: SeenRun, now: Seen | None = None) -> bool:
        """Whether a run that is to stop has only so much time for it."""
        messages = (now or self.seen).messages.values()
        asked = [m.body for m in messages if m.run_id == run.run_id and m.kind == "CancelRequest"]
        return run.close_as == "CANCELLED" or any("close_at" in json.loads(body) for body in asked)

    def _check_open(self, run: SeenRun, unread: Iterable[SeenMessage], now: Seen) -> None:
        if run.last_seq is not None:
            raise Violation("I03", f"run {run.run_id} is open, but has a last event")
        if run.owner is not None:
            if run.status != "RUNNING":
                raise Violation("I05", f"run {run.run_id} is owned and {run.status}")
            return
        if run.held is not None:
            return
        waits = json.loads(run.waiting) if run.status == "SUSPENDED" and run.waiting else []
        untils = [wait["until"] for wait in waits if "until" in wait]
        if untils and (run.wake_at is None or run.wake_at > min(untils)):
            raise Violation("I22", f"run {run.run_id} waits until {min(untils)}, but wakes at {run.wake_at}")
        if run.status == "SUSPENDED" and (run.wake_at is None or run.wake_at > self._ripe_until):
            # Code that was told to stop is not disturbed by further requests.
            is_told = any(event.kind == "CancelRequested" for event in self.histories.get(run.run_id, ()))
            for message in unread:
                is_known = (is_told and message.kind == "CancelRequest") or _is_woken_for(run, message)
                if _is_wanted(message, waits) and not is_known:
                    raise Violation("I27", f"run {run.run_id} sleeps until {run.wake_at} with {message} unread")
        ripe_until = max(self._ripe_until, run.delayed_until or self._ripe_until)
        # One that was alone with workers that died rests before it is tried again.
        rests = is_suspect(run.losses)
        if run.status == "PENDING" and not rests and (run.wake_at is None or run.wake_at > ripe_until):
            raise Violation("I27", f"run {run.run_id} is pending, and wakes at {run.wake_at}")

    # Whatever clock a message was posted by, it is not later than this.
    latest_clock = 0
    # Whether any run has received a signal that was sent with a delay.
    received_delayed = False

    @property
    def _ripe_until(self) -> int:
        """What is ripe at once is so by the latest clock there is; where there are turns, whatever the clocks say."""
        return -1 if isinstance(self._database, SqliteDatabase) else self.latest_clock

    def _check_ids(self, now: Seen) -> None:
        latest: set[str] = set()
        children: set[tuple[str, str]] = set()
        for run in now.runs.values():
            if run.is_latest:
                if run.workflow_id in latest:
                    raise Violation("I09", f"two latest runs have the id {run.workflow_id}")
                latest.add(run.workflow_id)
            elif run.closed_at is None:
                raise Violation("I09", f"run {run.run_id} is open, but not the latest of {run.workflow_id}")
            if run.parent_id is not None and run.parent_place is not None and run.continued_from is None:
                place = (run.parent_id, run.parent_place)
                if place in children:
                    raise Violation("I34", f"run {run.parent_id} started two children at {run.parent_place!r}")
                children.add(place)

    # Attempts

    def _check_attempts(self, before: Seen, now: Seen) -> None:
        if len(now.attempts) == len(before.attempts):
            return
        found: dict[tuple[str, str], int] = {}
        for attempt in sorted(now.attempts):
            key = (attempt.run_id, attempt.place)
            was = before.runs.get(attempt.run_id)
            if was is not None and was.closed_at is not None and attempt.attempt > self.attempts.get(key, 0):
                raise Violation("I11", f"run {attempt.run_id} was closed, and got an attempt at {attempt.place!r}")
            if attempt.attempt != found.get(key, 0) + 1:
                raise Violation("I18", f"attempt {attempt.attempt} at {attempt.place!r} follows {found.get(key, 0)}")
            found[key] = attempt.attempt
        self.attempts = found

    # Effects

    def began(self, run_id: str, place: str, number: int, after: int, worker_id: str) -> None:
        """An attempt begins in some process: what made the code ask for it must be on disk, its outcome must not."""
        if sim_once.name in place:
            # By whichever process, be it one that has lost the run.
            if (run_id, place) in self.begun_once:
                raise Violation("I46", f"the step {place!r} of run {run_id}, made at most once, began a second time")
            self.begun_once.add((run_id, place))
        self.begun.add(run_id)
        if run_id not in self.seen.runs:
            raise Violation("I06", f"a step of run {run_id} began, which is not on disk")
        run = self.seen.runs[run_id]
        asked_by = run.parent_id if run.is_task else run_id
        if len(self.histories.get(asked_by or "", ())) + 1 < after:
            raise Violation("I06", f"the step {place!r} of run {run_id} began before event {after} was on disk")
        if NOT_BEGUN in (run.outcome or "") and run_id not in self.lost:
            raise Violation("I53", f"the task {run_id} began after its caller was told that it had not")
        if run.owner != worker_id:
            # One that has lost the run and does not know may compute what it likes.
            return
        if (run_id, place) in self.outcomes:
            raise Violation("I25", f"the step {place!r} of run {run_id} began again, although its outcome is on disk")
        recorded = self.attempts.get((run_id, place), 0)
        if number != recorded + 1:
            raise Violation("I18", f"attempt {number} of {place!r} began after {recorded} recorded ones")


def _has_past_of(now: Seen, holder: str, run_id: str) -> bool:
    """Whether a message of this run is one of that run: it may have gone on with the run that continues it."""
    run: SeenRun | None = now.runs[holder]
    while run is not None and run.run_id != run_id:
        run = now.runs.get(run.continued_from or "")
    return run is not None


def _check_kept(was: SeenMessage, message: SeenMessage) -> None:
    """What was said once stays, and so does what was answered."""
    if was.body != message.body:
        raise Violation("I48", f"message {was.number} said {was.body}, and says {message.body} now")
    if was.answer is not None and message.answer != was.answer:
        raise Violation("I49", f"the answer to message {was.number} was {was.answer}, and is {message.answer} now")


def _came_to(run: SeenRun, result: Any) -> bool:
    return run.status == "COMPLETED" and json.loads(run.outcome or "null") == result


def _unread(messages: Iterable[SeenMessage]) -> dict[str, list[SeenMessage]]:
    found: dict[str, list[SeenMessage]] = {}
    for message in messages:
        if message.taken_by is None:
            found.setdefault(message.run_id, []).append(message)
    return found


def _is_woken_for(run: SeenRun, message: SeenMessage) -> bool:
    """Whether a parked run wakes by the time at which a delayed signal is due."""
    due_at = json.loads(message.body).get("due_at") if message.kind == "SignalSent" else None
    return due_at is not None and run.wake_at is not None and run.wake_at <= due_at


def _is_wanted(message: SeenMessage, waits: list[dict[str, Any]]) -> bool:
    """Whether a parked run has to be woken for a message: it waits for it, or is told to stop."""
    body = json.loads(message.body)
    match message.kind:
        case "SignalSent":
            return any(wait["kind"] == "signal" and wait["name"] == body["name"] for wait in waits)
        case "DeferredResult":
            return any(wait["kind"] == "deferred" and wait["name"] == body["name"] for wait in waits)
        case "RequestSent":
            return any(wait["kind"] == "request" and wait["name"] == body["name"] for wait in waits)
        case "ChildResult" | "ChildFailure":
            return any(wait["kind"] in {"child", "activity"} and wait["place"] == body["place"] for wait in waits)
        case "CancelRequest":
            # Whoever undoes is not disturbed by it; only a deadline ends that sooner.
            return not any(str(wait["place"]).startswith("undo") for wait in waits)
        case _:
            return True


_BECOMES: dict[str, set[Any]] = {
    "SignalSent": {"SignalReceived"},
    "DeferredResult": {"DeferredResolved"},
    "RequestSent": {"RequestReceived"},
    "ChildResult": {"ChildCompleted"},
    "ChildFailure": {"ChildFailed"},
    "CancelRequest": {"CancelRequested"},
    "TerminateRequest": set(),
    "PauseRequest": set(),
    "ResumeRequest": set(),
}
