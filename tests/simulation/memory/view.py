"""A view: the database as one open transaction sees it under read committed, and what it holds of it.

In:   new versions of rows, locks, savepoints.
Out:  rows: those committed by now, and over them its own. All becomes visible at once, or vanishes.

Whoever changes a row holds it until the transaction ends, so a row has one uncommitted
version at most. Statements lock what they are about to change and then look again at the
newest version, as `select … for update` does.
"""

from collections.abc import Generator
from typing import Any, Generic, TypeAlias, TypeVar

import msgspec

from perdure.stores.operations import AppendEvent
from perdure.stores.queries import BEFORE_ALL_TURNS
from tests.simulation.memory.tables import InboxRow, Table, Tables

K = TypeVar("K")
V = TypeVar("V")
T = TypeVar("T")

_ABSENT: Any = object()


class Progress(msgspec.Struct, frozen=True):
    """A statement is done."""

    statement: str


class Blocked(msgspec.Struct, frozen=True):
    """The statement waits until another transaction ends, or lets go of what it is about."""

    by: "View"


Steps: TypeAlias = Generator[Progress | Blocked, None, T]
Mark: TypeAlias = tuple[int, int, int]


class Refused(Exception):  # noqa: N818 - it is what it says
    """A rule of the tables is against this change; the group it belongs to is Broken."""


class Sight(Generic[K, V]):
    """One table as its transaction sees it."""

    __slots__ = ("_view", "own", "table")

    def __init__(self, view: "View", table: Table[K, V]) -> None:
        self._view = view
        self.table = table
        self.own: dict[K, V | None] = {}

    def get(self, key: K) -> V | None:
        """The row as the statement that begins now sees it."""
        row = self.own.get(key, _ABSENT)
        return self.table.rows.get(key) if row is _ABSENT else row

    def put(self, key: K, row: V | None) -> None:
        """Change a row that nobody else holds."""
        view, own, held = self._view, self.own, self.table.held
        if not own:
            view.touched.append(self)
            view.transaction_id()
        view.log.append((own, key, own.get(key, _ABSENT)))
        own[key] = row
        if key not in held:
            held[key] = view
            view.holds.append((held, key))

    def hold(self, key: K) -> None:
        """Keep others from changing a row until the transaction ends."""
        held = self.table.held
        if key not in held:
            held[key] = self._view
            self._view.holds.append((held, key))

    def is_taken(self, key: K) -> bool:
        """Whether another open transaction has changed or locked it."""
        holder = self.table.held.get(key)
        return holder is not None and holder is not self._view

    def wait(self, key: K) -> Steps[None]:
        """Wait until nobody else holds it."""
        while self.is_taken(key):
            yield Blocked(self.table.held[key])


class View:
    """What an open transaction sees, has changed and holds."""

    def __init__(self, tables: Tables) -> None:
        self.tables = tables
        self.log: list[tuple[dict[Any, Any], Any, Any]] = []
        self.holds: list[tuple[dict[Any, View], Any]] = []
        self.touched: list[Sight[Any, Any]] = []
        self.shares: list[str] = []
        self.waits_for: View | None = None
        self._numbers: list[int] = []
        self.runs = Sight(self, tables.runs)
        self.latest = Sight(self, tables.latest)
        self.events = Sight(self, tables.events)
        self.inbox = Sight(self, tables.inbox)
        self.message_ids = Sight(self, tables.message_ids)
        self.attempts = Sight(self, tables.attempts)
        self.progress = Sight(self, tables.progress)
        self.snapshots = Sight(self, tables.snapshots)
        self.heads = Sight(self, tables.heads)
        self.values = Sight(self, tables.values)
        self.payloads = Sight(self, tables.payloads)
        self.entries = Sight(self, tables.entries)
        self.messages_read = Sight(self, tables.messages_read)
        self.deaths = Sight(self, tables.deaths)
        self.judged = Sight(self, tables.judged)
        self.workers = Sight(self, tables.workers)
        self.namespaces = Sight(self, tables.namespaces)
        self.access_keys = Sight(self, tables.access_keys)
        self.keys = Sight(self, tables.keys)
        self.announced = Sight(self, tables.announced)
        self.listeners = Sight(self, tables.listeners)
        self.changes = Sight(self, tables.changes)
        # What it has written can be found by; a transaction that has written nothing has none.
        self.number: int | None = None
        self.schedules = Sight(self, tables.schedules)
        self.schedule_names = Sight(self, tables.schedule_names)
        self.decisions = Sight(self, tables.decisions)
        self.duties = Sight(self, tables.duties)
        self.sinks = Sight(self, tables.sinks)
        self.sink_names = Sight(self, tables.sink_names)
        self.outbox = Sight(self, tables.outbox)
        self.letters = Sight(self, tables.letters)
        self.deadlines = Sight(self, tables.deadlines)
        self._turn: int | None = None
        # The savepoints that are open, the last one at the end.
        self.marks: list[Mark] = []
        tables.open[self] = None

    # Numbers

    def transaction_id(self) -> int:
        """The number of this transaction, from its first change on."""
        if self.number is None:
            self.tables.last_transaction += 1
            self.number = self.tables.last_transaction
        return self.number

    def take_number(self) -> int:
        """The next message's number; nobody else gets it, whatever becomes of this transaction."""
        self.tables.last_number += 1
        self._numbers.append(self.tables.last_number)
        return self.tables.last_number

    def take_event_number(self) -> int:
        """The number of the next event for a sink; what is rolled back leaves a gap on Postgres."""
        self.tables.last_event_number += 1
        return self.tables.last_event_number

    def take_place(self, run_id: str) -> None:
        """Runs that are ripe at the same time come in the order they were inserted in; on Postgres by their ids."""
        self.tables.last_place += 1
        self.tables.runs.places[run_id] = self.tables.last_place if self.tables.has_turns else 0

    # Turns

    def next_statement(self) -> None:
        """What becomes ripe from now on comes after what did before."""
        self._turn = None

    def at_once(self, at: int) -> int:
        """When a run is ripe that is so at once: at this time, or where there are turns, after all that have one."""
        if not self.tables.has_turns:
            return at
        if self._turn is None:
            free = (self.runs.get(run_id) for run_id in {**self.tables.runs.rows, **self.runs.own})
            turns = (row.wake_at for row in free if row is not None and row.owner is None and row.wake_at is not None)
            self._turn = 1 + max((turn for turn in turns if turn < 0), default=BEFORE_ALL_TURNS)
        return self._turn

    # What many statements look for

    def messages_of(self, run_id: str) -> list[InboxRow]:
        """All messages for a run, by number."""
        committed, own = self.tables.inbox, self.inbox.own
        found = [committed.rows[number] for number in committed.by_run.get(run_id, ()) if number not in own]
        found += [row for row in own.values() if row is not None and row.run_id == run_id]
        return sorted(found, key=lambda row: row.number)

    def children_of(self, run_id: str) -> list[str]:
        """The runs that a run has started, those of this transaction as well."""
        found = dict(self.tables.runs.children.get(run_id, {}))
        own = {key: None for key, row in self.runs.own.items() if row is not None and row.parent_id == run_id}
        return [*(found | own)]

    def last_event(self, run_id: str) -> tuple[int, int]:
        """Number and time of a run's last event; the first one is in its row."""
        return max(((event.seq, event.at) for event in self.events_of(run_id)), default=(1, 0))

    def events_of(self, run_id: str) -> list[AppendEvent]:
        """A run's events, by number."""
        found = dict(self.tables.events.by_run.get(run_id, {}))
        found |= {seq: event for (of, seq), event in self.events.own.items() if event is not None and of == run_id}
        return [found[seq] for seq in sorted(found)]

    # Workers' rows

    def share_worker(self, worker_id: str) -> None:
        """Keep others from taking this worker over until the transaction ends."""
        sharers = self.tables.workers.shared.setdefault(worker_id, {})
        if self not in sharers:
            sharers[self] = None
            self.shares.append(worker_id)

    def is_worker_locked(self, worker_id: str) -> bool:
        """Whether an open batch of others relies on this worker's epoch, or is about to move it."""
        return self._holder_of_worker(worker_id) is not None

    def lock_worker(self, worker_id: str) -> Steps[None]:
        """Wait for every open batch that relies on this worker's epoch, and keep new ones out."""
        workers = self.tables.workers
        while (by := self._holder_of_worker(worker_id)) is not None:
            yield Blocked(by)
        if worker_id in workers.rows:
            self.workers.hold(worker_id)

    def _holder_of_worker(self, worker_id: str) -> "View | None":
        if self.workers.is_taken(worker_id):
            return self.tables.workers.held[worker_id]
        return next((view for view in self.tables.workers.shared.get(worker_id, ()) if view is not self), None)

    # Ends

    def savepoint(self) -> Mark:
        """Where roll_back_to leads back to."""
        return len(self.log), len(self.holds), len(self._numbers)

    def roll_back_to(self, mark: Mark) -> None:
        """Undo what was done since, and let go of what was locked since."""
        changes, holds, numbers = mark
        while len(self.log) > changes:
            own, key, before = self.log.pop()
            if self.tables.gives_numbers_back and own is self.outbox.own:
                self._give_event_number_back(key)
            if before is _ABSENT:
                del own[key]
            else:
                own[key] = before
        self._release(holds)
        if self.tables.gives_numbers_back:
            self._give_numbers_back(numbers)
        # Whoever waited for this transaction may not have to any more.
        for other in self.tables.open:
            if other.waits_for is self:
                other.waits_for = None

    def commit(self) -> None:
        """Make everything visible at once."""
        for sight in self.touched:
            publish = sight.table.publish
            for key, row in sight.own.items():
                publish(key, row)
        if self.log:
            self.tables.version += 1
        self._end()

    def roll_back(self) -> None:
        """Leave nothing behind."""
        self.roll_back_to((0, 0, 0))
        self._end()

    def begin_again(self) -> None:
        """Roll back, and begin another transaction."""
        self.roll_back_to((0, 0, 0))
        self._give_up_shares()
        self.marks.clear()
        self.number = None

    def _give_numbers_back(self, kept: int) -> None:
        """Those that are still the last ones; others may have taken some since."""
        while len(self._numbers) > kept and self._numbers[-1] == self.tables.last_number:
            self._numbers.pop()
            self.tables.last_number -= 1

    def _give_event_number_back(self, number: object) -> None:
        if number == self.tables.last_event_number and number not in self.tables.outbox.rows:
            self.tables.last_event_number -= 1

    def _end(self) -> None:
        self._release(0)
        self.waits_for = None
        self._give_up_shares()
        self.tables.open.pop(self, None)

    def _give_up_shares(self) -> None:
        for worker_id in self.shares:
            del self.tables.workers.shared[worker_id][self]
        self.shares.clear()

    def _release(self, kept: int) -> None:
        for held, key in self.holds[kept:]:
            del held[key]
        del self.holds[kept:]
