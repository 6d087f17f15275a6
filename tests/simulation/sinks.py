"""A sink in a simulation: who makes it, what becomes of what is sent to it, and what must hold after every write.

In:   a tape; events that are sent; batches that were written.
Out:  requests about a sink; answers to those who send, late, wrong or never; Violation when an event is lost, was
      never true, or comes before an earlier one of its run.

What is to be told is read off the runs and histories on disk, and not off what the outbox says of itself.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from enum import Enum
from typing import NamedTuple

import msgspec

from perdure.app import Perdure
from perdure.app.senders import FunctionSender
from perdure.authoring.sinks import DecoratedSink
from perdure.engine.outbox.sinks import EventSender, Log, Sink
from perdure.kernel.outbox import GAP, HELD, STARTED, STEPS, TASK_STEPS, OutboxEvent, event_id
from perdure.kernel.traits import TASK_PREFIX
from perdure.stores.answers import Committed
from tests.simulation.clients import Request
from tests.simulation.invariants import Violation
from tests.simulation.sight import Seen, SeenEvent
from tests.simulation.simulator import Database, MemoryDatabase, Node, SqliteDatabase, Tape

NAME, EVENTS = "told", ("run.*", "step.*")
# An event fails so often at most: each time it waits four times as long, and all is to end some day.
MOST_FAILURES = 3


class AddSink(Request):
    """Make the sink; nothing may be missed once this was answered."""

    def __init__(self, after_step: int, max_attempts: int, max_backlog: int) -> None:
        super().__init__(NAME, after_step)
        self._options = {"max_attempts": max_attempts, "max_backlog": max_backlog, "concurrency": 2}

    async def ask(self, app: Perdure) -> None:
        await app.outbox.add(NAME, Log(), events=EVENTS, **self._options)  # type: ignore[arg-type]  # counts


class ReplayLetters(Request):
    """Deliver what the sink did not take."""

    async def ask(self, app: Perdure) -> None:
        await app.outbox.replay(NAME)


class Answer(Enum):
    """What becomes of an event that is sent."""

    TAKEN = "it is taken when the answer comes"
    TAKEN_FIRST = "it is taken at once, and the answer comes later"
    FAILED = "it is not taken"
    TAKEN_IN_VAIN = "it is taken, and the answer is an error"
    NONE = "it is not taken, and no answer comes"


FAILURES = {Answer.FAILED, Answer.TAKEN_IN_VAIN, Answer.NONE}


class Delivery:
    """An event on its way."""

    def __init__(self, node: Node, event: OutboxEvent, answer: Answer, took: Callable[[OutboxEvent], None]) -> None:
        self.node = node
        self.number = event.id
        self.future: asyncio.Future[None] = node.loop.create_future()
        self._event = event
        self._answer = answer
        self._took = took
        if answer is Answer.TAKEN_FIRST:
            took(event)

    def end(self) -> None:
        """The answer comes."""
        if self.future.done():
            return
        if self._answer in {Answer.TAKEN, Answer.TAKEN_IN_VAIN}:
            self._took(self._event)
        if self._answer in FAILURES:
            self.future.set_exception(ConnectionError("nobody there"))
        else:
            self.future.set_result(None)


def drawn_sink(tape: Tape) -> list[Request]:
    """A sink, and what people do with it."""
    made = AddSink(tape.choose(60), tape.one_of(10, 1, 2), tape.one_of(100_000, 100_000, 4))
    return [made, *(ReplayLetters(NAME, made.after_step + tape.choose(300)) for _ in range(tape.choose(2)))]


class SeenRow(NamedTuple):
    run_id: str
    type: str
    number: int
    at: int

    @property
    def id(self) -> str:
        return event_id(*self)


class SeenOutbox(NamedTuple):
    """The ids of events that wait, those of dead letters, and whether the sink is behind."""

    waiting: list[str]
    letters: list[str]
    is_behind: bool


def look_at_outbox(database: Database) -> SeenOutbox:
    """All that is on disk of events for the sink."""
    if isinstance(database, MemoryDatabase):
        tables = database.tables
        waiting = [SeenRow(row.run_id, row.type, row.number, row.at).id for row in tables.outbox.rows.values()]
        buried = [letter.event for letter in tables.letters.rows.values()]
        letters = [SeenRow(row.run_id, row.type, row.number, row.at).id for row in buried]
        return SeenOutbox(waiting, letters, any(row.behind_at is not None for row in tables.sinks.rows.values()))
    assert isinstance(database, SqliteDatabase)
    ask = database.db.execute
    waiting = [SeenRow(*row).id for row in ask("select run_id, type, number, at from outbox")]
    letters = [SeenRow(*row).id for row in ask("select run_id, type, number, at from dead_letters")]
    is_behind = ask("select 1 from sinks where behind_at is not null").fetchone() is not None
    return SeenOutbox(waiting, letters, is_behind)


class SinkWitness:
    """Knows what the sink has to be told, sees what it is told, and every write in between."""

    def __init__(self, database: Database, tape: Tape, reach: Callable[[str], None]) -> None:
        self._database = database
        self._tape = tape
        self._reach = reach
        self._is_wanted = False
        self._seen = SeenOutbox([], [], is_behind=False)
        # How often in a thousand times it does not do what it should; not any more when all is healed.
        self.per_mille = 0
        # All that has happened, and since when nothing may be missed.
        self._true: set[str] = set()
        self._is_promised = False
        self._promised: set[str] = set()
        self._missed: set[str] = set()
        self._was_behind = False
        # What it was told, how often it has refused, and what was ever given up.
        self._told: dict[str, OutboxEvent] = {}
        self._refused: Counter[str] = Counter()
        self._given_up: set[str] = set()
        self._last: dict[str, int] = {}

    def draw(self) -> list[Request]:
        """Have a sink in this schedule."""
        self._is_wanted = True
        self.per_mille = self._tape.one_of(0, 200, 500)
        return drawn_sink(self._tape)

    # Sending

    def sender(self, node: Node, sent: Callable[[Delivery], None], took: Callable[[OutboxEvent], None]) -> EventSender:
        """How one process sends to it: as to a function of its own."""

        async def take(event: OutboxEvent) -> None:
            delivery = Delivery(node, event, self._answer(event), took)
            sent(delivery)
            await delivery.future

        return FunctionSender(DecoratedSink(take, NAME, Sink(Log(), EVENTS)))

    def _answer(self, event: OutboxEvent) -> Answer:
        fails = self.per_mille and self._refused[event.id] < MOST_FAILURES and self._tape.happens(self.per_mille)
        if not fails:
            return self._tape.one_of(Answer.TAKEN, Answer.TAKEN_FIRST)
        self._refused[event.id] += 1
        self._reach("a sink did not take an event")
        return self._tape.one_of(Answer.FAILED, Answer.TAKEN_IN_VAIN, Answer.NONE)

    def took(self, event: OutboxEvent) -> None:
        """It takes an event: one that is true, for the first time in its turn, and the same one each time."""
        if (known := self._told.get(event.id)) is not None:
            self._reach("an event was taken twice")
            if _shape(known) != _shape(event):
                raise Violation("I36", f"{event.id} was {known}, and is {event} now")
            return
        self._told[event.id] = event
        if event.type == GAP:
            self._reach("a gap was told")
            return
        if event.id not in self._true and event.type != HELD:
            raise Violation("I36", f"{event.type} {event.id} was told, and never happened")
        run_id = str(event.run_id)
        if event.id not in self._given_up:
            if event.number < self._last.get(run_id, 0):
                raise Violation("I36", f"{event.type} {event.id} was told after event {self._last[run_id]} of its run")
            self._last[run_id] = event.number

    # What is on disk

    def promised(self) -> None:
        """From now on nothing may be missed."""
        self._is_promised = True
        self._reach("a sink was made")

    def wrote(self, outcome: object, before: Seen, now: Seen) -> None:
        """A batch was written: what has changed waits to be told, and what does not wait any more was."""
        if not self._is_wanted or not isinstance(outcome, Committed):
            return
        new = list(_changes(before, now))
        held = _newly_held(before, now)
        self._true.update(new)
        was, self._seen = self._seen, look_at_outbox(self._database)
        here = {*self._seen.waiting, *self._seen.letters}
        self._given_up.update(self._seen.letters)
        if len(self._seen.letters) > len(was.letters):
            self._reach("a dead letter")
        if gone := {*was.waiting, *was.letters} - here - self._told.keys():
            raise Violation("I36", f"{sorted(gone)} are gone, and were not told")
        if self._is_promised:
            self._promised.update(new)
            told = {id.partition(":")[0] for id in here if ":held:" in id}
            self._check_queued(({*new} - here) | (held - told), was)
        self._was_behind |= self._seen.is_behind

    def _check_queued(self, missing: set[str], was: SeenOutbox) -> None:
        """Whatever changes is queued in the same transaction, but for a sink that is behind."""
        # It may have come to be so half-way; and where transactions overlap, one may have seen it so that commits when
        # it is not any more.
        is_behind = was.is_behind or self._seen.is_behind
        is_behind |= self._was_behind and isinstance(self._database, MemoryDatabase)
        if missing and not is_behind:
            raise Violation("I36", f"{sorted(missing)} happened, and wait for nobody")
        self._missed |= missing

    @property
    def is_over(self) -> bool:
        """Whether there is nothing left to tell."""
        return not self._seen.waiting and not self._seen.is_behind

    def judge(self) -> None:
        """All that was promised was told or given up; and if something was missed, that was told."""
        lost = self._promised - self._told.keys() - self._missed - {*self._seen.letters}
        if lost:
            raise Violation("I36", f"{sorted(lost)} were never told")
        told = {*self._told, *self._given_up}
        if self._missed and not any(id.startswith("sink:") for id in told):
            raise Violation("I36", f"{sorted(self._missed)} were not told, and nobody says so")


def _shape(event: OutboxEvent) -> tuple[object, ...]:
    """What is the same however often it is told; how a run stands may be told anew."""
    return (event.id, event.type, event.at, event.run_id, event.workflow_id, event.number)


def _changes(before: Seen, now: Seen) -> Iterator[str]:
    """The ids of what has happened in between, as far as they follow from runs and histories."""
    for run in now.runs.values():
        was = before.runs.get(run.run_id)
        if run is was or run.is_task:
            continue
        if was is None:
            yield event_id(run.run_id, STARTED, 1, run.created_at)
        if run.closed_at is not None and (was is None or was.closed_at is None):
            yield event_id(run.run_id, f"run.{run.status.lower()}", run.last_seq or 0, run.closed_at)
    for event in now.events:
        run = now.runs[event.run_id]
        is_copied = run.forked_from is not None and event.run_id not in before.runs
        step = STEPS.get(event.kind) or _step_on_a_queue(event)
        if step is not None and not run.is_task and not is_copied:
            yield event_id(event.run_id, step, event.seq, event.at)


def _step_on_a_queue(event: SeenEvent) -> str | None:
    """The end of an activity on a queue, which its caller's history has as that of a child; None for all else."""
    step = TASK_STEPS.get(event.kind)
    if step is None or not msgspec.json.decode(event.body)["workflow"].startswith(TASK_PREFIX):
        return None
    return step


def _newly_held(before: Seen, now: Seen) -> set[str]:
    """The runs that were held in between; at which moment is not told by their rows."""
    return {
        run.run_id
        for run in now.runs.values()
        if run.held is not None
        and not run.is_task
        and ((was := before.runs.get(run.run_id)) is None or was.held != run.held)
    }
