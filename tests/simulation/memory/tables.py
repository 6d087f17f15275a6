"""Tables: what is committed, found by its keys, and which open transaction holds which of it.

In:   new versions of rows, all those of a transaction at once.
Out:  rows by key and by what the statements look for. A version is never changed once it is here.
Knows nothing of what a transaction may do; the statements decide that.
"""

from bisect import bisect_left, insort
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

import msgspec

from perdure.kernel.position import Position
from perdure.kernel.quarantine import is_suspect
from perdure.stores.operations import AppendEvent, NoteDeadline, NoteDecision, RecordAttempt
from perdure.stores.records import (
    CallProgress,
    DutyRow,
    KeyRow,
    ListenerRow,
    RunRow,
    ScheduleRow,
    SinkRow,
    SnapshotRow,
    StreamHead,
    StreamValue,
    WorkerRow,
)

if TYPE_CHECKING:
    from tests.simulation.memory.view import View

K = TypeVar("K")
V = TypeVar("V")

# When a free run is ripe, which of those was inserted first, and its id.
Ripe = tuple[int, int, str]


class InboxRow(msgspec.Struct, frozen=True, gc=False):
    """A message as it stands in its row."""

    number: int
    namespace: str
    run_id: str
    message_id: str
    kind: str
    body: str
    at: int
    taken_by: int | None = None
    answer: str | None = None


class WaitingEvent(NamedTuple):
    """An event as it stands in its row."""

    n: int
    sink_id: str
    run_id: str
    workflow_id: str | None
    workflow: str | None
    type: str
    number: int
    at: int
    step: str | None
    held: str | None
    attributes: str | None
    attempts: int
    next_at: int | None
    error: str | None = None


class Letter(NamedTuple):
    """A dead letter as it stands in its row."""

    event: WaitingEvent
    died_at: int


class Table(Generic[K, V]):
    """Committed rows by their key; `held` says which open transaction has changed or locked a key."""

    def __init__(self) -> None:
        self.rows: dict[K, V] = {}
        self.held: dict[K, View] = {}

    def publish(self, key: K, row: V | None) -> None:
        """Make a version the one that everybody sees; None when there is no such row any more."""
        if row is None:
            self.rows.pop(key, None)
        else:
            self.rows[key] = row


class Runs(Table[str, RunRow]):
    """Runs, and the ways by which they are looked for."""

    def __init__(self) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.places: dict[str, int] = {}
        # Free runs with a time to wake at, by queue and priority; suspects for themselves.
        self.ripe: dict[str, dict[int, list[Ripe]]] = {}
        self.suspected: dict[str, dict[int, list[Ripe]]] = {}
        self.owned: dict[str, dict[str, None]] = {}
        self.children: dict[str, dict[str, None]] = {}
        self.closing: dict[str, None] = {}
        self.held_back: dict[str, None] = {}

    def publish(self, key: str, row: RunRow | None) -> None:
        assert row is not None, "runs are never deleted"
        before = self.rows.get(key)
        self.rows[key] = row
        if before is None:
            insort(self.ids, key)
            if row.parent_id is not None:
                self.children.setdefault(row.parent_id, {})[key] = None
        self._index_ripe(key, before, row)
        self._index_owner(key, before, row)
        if row.close_at is not None or key in self.closing:
            _index(self.closing, key, is_in=row.close_at is not None and row.closed_at is None)
        if row.held is not None or key in self.held_back:
            _index(self.held_back, key, is_in=row.held is not None)

    def _index_ripe(self, run_id: str, before: RunRow | None, row: RunRow) -> None:
        old = None if before is None or before.owner is not None else before.wake_at
        new = None if row.owner is not None else row.wake_at
        if old == new and (before is None or before.losses == row.losses):
            return
        place = self.places[run_id]
        if before is not None and old is not None:
            level = self._level(before)
            del level[bisect_left(level, (old, place, run_id))]
        if new is not None:
            insort(self._level(row), (new, place, run_id))

    def _level(self, row: RunRow) -> list[Ripe]:
        index = self.suspected if is_suspect(row.losses) else self.ripe
        return index.setdefault(row.queue, {}).setdefault(row.priority, [])

    def _index_owner(self, run_id: str, before: RunRow | None, row: RunRow) -> None:
        old = None if before is None or before.closed_at is not None else before.owner
        new = None if row.closed_at is not None else row.owner
        if old != new:
            if old is not None:
                del self.owned[old][run_id]
            if new is not None:
                self.owned.setdefault(new, {})[run_id] = None


class Events(Table[tuple[str, int], AppendEvent]):
    """Events by run and number; the operation that appends one has all its columns."""

    def __init__(self) -> None:
        super().__init__()
        self.by_run: dict[str, dict[int, AppendEvent]] = {}

    def publish(self, key: tuple[str, int], row: AppendEvent | None) -> None:
        assert row is not None, "events are never deleted"
        self.rows[key] = row
        self.by_run.setdefault(key[0], {})[key[1]] = row


class Inbox(Table[int, InboxRow]):
    """Messages by number, and by the run they are for."""

    def __init__(self) -> None:
        super().__init__()
        self.numbers: list[int] = []
        self.by_run: dict[str, dict[int, None]] = {}

    def publish(self, key: int, row: InboxRow | None) -> None:
        assert row is not None, "messages are never deleted"
        before = self.rows.get(key)
        self.rows[key] = row
        if before is None:
            # Numbers are taken when a message is put, and may become visible in another order.
            insort(self.numbers, key)
        elif before.run_id != row.run_id:
            del self.by_run[before.run_id][key]
        self.by_run.setdefault(row.run_id, {})[key] = None


class Attempts(Table[tuple[str, str, int], RecordAttempt]):
    """Failed attempts; the operation that records one has all its columns."""

    def __init__(self) -> None:
        super().__init__()
        self.by_run: dict[str, dict[tuple[str, int], RecordAttempt]] = {}

    def publish(self, key: tuple[str, str, int], row: RecordAttempt | None) -> None:
        assert row is not None, "attempts are never deleted"
        self.rows[key] = row
        self.by_run.setdefault(key[0], {})[key[1:]] = row


class ProgressOfCalls(Table[tuple[str, str], tuple[str, CallProgress]]):
    """What is known of calls, with the namespace of their run."""

    def __init__(self) -> None:
        super().__init__()
        self.by_run: dict[str, dict[str, CallProgress]] = {}

    def publish(self, key: tuple[str, str], row: tuple[str, CallProgress] | None) -> None:
        assert row is not None, "what is known of calls is never deleted"
        self.rows[key] = row
        self.by_run.setdefault(key[0], {})[key[1]] = row[1]


class Workers(Table[str, WorkerRow]):
    """Workers; `shared` says whose open batches rely on the epoch of each."""

    def __init__(self) -> None:
        super().__init__()
        self.shared: dict[str, dict[View, None]] = {}


class Tables:
    """The database that simulated processes share.

    Message numbers of what is rolled back are lost, as with a Postgres sequence; with
    `gives_numbers_back` they are used again, as SQLite does. What is ripe at once is so by the time
    of whoever says it, as on Postgres; with `has_turns` it takes its turn, as SQLite has it. `living` holds the
    workers whose processes are alive, for whoever simulates them to change; None when that cannot be told.
    """

    def __init__(
        self, *, gives_numbers_back: bool = False, has_turns: bool = False, living: set[str] | None = None
    ) -> None:
        self.runs = Runs()
        # Which run is the latest of its namespace and workflow_id.
        self.latest: Table[tuple[str, str], str] = Table()
        self.events = Events()
        self.inbox = Inbox()
        # Which number a run's message of this id has.
        self.message_ids: Table[tuple[str, str], int] = Table()
        self.attempts = Attempts()
        self.progress = ProgressOfCalls()
        # What runs show and publish, with the namespace of the run.
        self.snapshots: Table[str, tuple[str, SnapshotRow]] = Table()
        self.heads: Table[tuple[str, str, str], tuple[str, StreamHead]] = Table()
        self.values: Table[tuple[str, str, int], tuple[str, StreamValue]] = Table()
        self.payloads: Table[tuple[str, int], str] = Table()
        # A table of the users', which transactional activities write to: the key of a call and its number.
        self.entries: Table[int, tuple[str, int]] = Table()
        # How many messages a run had read when they were counted last; who holds the run's row holds this.
        self.messages_read: Table[str, int] = Table()
        # Which workers died with a run alone, as JSON, and when a lost one was judged; who holds the row holds these.
        self.deaths: Table[str, str] = Table()
        self.judged: Table[str, int] = Table()
        self.workers = Workers()
        # When each was made.
        self.namespaces: Table[str, int] = Table()
        self.namespaces.publish("main", 0)
        # The keys of callers, by column as the database has them.
        self.access_keys: Table[str, dict[str, object]] = Table()
        # What is kept under idempotency keys, by namespace, command and key, and when it may be taken over.
        self.keys: Table[tuple[str, str, str], tuple[KeyRow, int]] = Table()
        # What workers announced: by namespace and name the body, and what tells whether it has changed.
        self.announced: Table[tuple[str, str], tuple[str, str]] = Table()
        # Who listens, and which runs have changed by which transaction.
        self.listeners: Table[str, ListenerRow] = Table()
        self.changes: Table[tuple[int, str], bool] = Table()
        self.last_transaction = 0
        # Schedules by id, and which id the one of a namespace and a name has; their decisions by slot.
        self.schedules: Table[str, ScheduleRow] = Table()
        self.schedule_names: Table[tuple[str, str], str] = Table()
        self.decisions: Table[tuple[str, int], NoteDecision] = Table()
        self.duties: Table[tuple[str, str], DutyRow] = Table()
        # Sinks by id, and the id of each namespace and name; what waits for them, and what they did not take.
        self.sinks: Table[str, SinkRow] = Table()
        self.sink_names: Table[tuple[str, str], str] = Table()
        self.outbox: Table[int, WaitingEvent] = Table()
        self.letters: Table[int, Letter] = Table()
        self.last_event_number = 0
        # The attempts that remote workers make.
        self.deadlines: Table[str, NoteDeadline] = Table()
        self.gives_numbers_back = gives_numbers_back
        self.has_turns = has_turns
        self.living = living
        self.open: dict[View, None] = {}
        self.last_number = 0
        self.last_place = 0
        self.last_entry = 0
        self.version = 0

    def dump(self) -> dict[str, dict[Any, Any]]:
        """Everything that is committed, by table and in the order of keys."""
        return {
            "runs": _sorted(self.runs),
            "latest": _sorted(self.latest),
            "events": _sorted(self.events),
            "inbox": _sorted(self.inbox),
            "message_ids": _sorted(self.message_ids),
            "attempts": _sorted(self.attempts),
            "progress": _sorted(self.progress),
            "snapshots": _sorted(self.snapshots),
            "stream_heads": _sorted(self.heads),
            "streams": _sorted(self.values),
            "deaths": _sorted(self.deaths),
            "judged": _sorted(self.judged),
            "workers": _sorted(self.workers),
            "namespaces": _sorted(self.namespaces),
            "access_keys": _sorted(self.access_keys),
            "idempotency_keys": _sorted(self.keys),
            "announced_workflows": _sorted(self.announced),
            "listeners": _sorted(self.listeners),
            "changes": _sorted(self.changes),
            "schedules": _sorted(self.schedules),
            "schedule_decisions": _sorted(self.decisions),
            "duties": _sorted(self.duties),
            "sinks": _sorted(self.sinks),
            "outbox": _sorted(self.outbox),
            "dead_letters": _sorted(self.letters),
            "attempt_deadlines": _sorted(self.deadlines),
        }

    def position(self) -> Position:
        """What is committed by now, and which transactions are open that have written something."""
        numbers = (view.number for view in self.open)
        return Position(self.last_transaction + 1, frozenset(number for number in numbers if number is not None))


def _sorted(table: Table[Any, V]) -> dict[Any, V]:
    return {key: table.rows[key] for key in sorted(table.rows)}


def _index(index: dict[str, None], key: str, *, is_in: bool) -> None:
    if is_in:
        index[key] = None
    elif key in index:
        del index[key]
