"""What is on disk, seen from outside the engine, in plain tuples."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from perdure.kernel.traits import TASK_PREFIX
from tests.simulation.memory import Tables
from tests.simulation.simulator import Database, MemoryDatabase, SqliteDatabase
from tests.simulation.simulator.database import ENTRIES


class SeenRun(NamedTuple):
    run_id: str
    workflow_id: str
    workflow: str
    is_latest: int
    status: str
    held: str | None
    owner: str | None
    wake_at: int | None
    waiting: str | None
    messages: int
    parent_id: str | None
    parent_place: str | None
    on_parent_close: str | None
    input: str
    outcome: str | None
    last_seq: int | None
    created_at: int
    closed_at: int | None
    delayed_until: int | None
    timeout_ms: int | None
    close_at: int | None
    close_as: str | None
    cancel_requested_at: int | None
    continued_from: str | None
    losses: int
    undo: str | None
    forked_from: str | None
    fork_kind: str | None
    forked_at: int | None
    first_at: int | None
    schedule: str | None
    scheduled_for: int | None

    @property
    def is_task(self) -> bool:
        """Whether it is an activity on a queue."""
        return self.workflow.startswith(TASK_PREFIX)


class SeenEvent(NamedTuple):
    id: int
    run_id: str
    seq: int
    kind: str
    place: str
    at: int
    body: str


class SeenMessage(NamedTuple):
    number: int
    run_id: str
    message_id: str
    kind: str
    body: str
    taken_by: int | None
    answer: str | None


class SeenAttempt(NamedTuple):
    run_id: str
    place: str
    attempt: int


class SeenSnapshot(NamedTuple):
    run_id: str
    seq: int
    body: str


class SeenValue(NamedTuple):
    """A value of a stream."""

    run_id: str
    name: str
    n: int
    attempt: int
    body: str


class SeenEntry(NamedTuple):
    """A row of the users' own, written by a transactional activity."""

    key: str
    number: int


class SeenWorker(NamedTuple):
    worker_id: str
    epoch: int
    lease_until: int


class Seen(NamedTuple):
    """Everything, as of now; of the events only those after the ones seen before."""

    runs: dict[str, SeenRun]
    events: list[SeenEvent]
    messages: dict[int, SeenMessage]
    attempts: list[SeenAttempt]
    workers: dict[str, SeenWorker]
    snapshots: dict[str, SeenSnapshot]
    values: list[SeenValue]
    entries: list[SeenEntry]


_RUNS = f"select {', '.join(SeenRun._fields)} from runs"
# Large bodies lie apart from their rows.
_EVENTS = """
select events.id, events.run_id, events.seq, kind, place, at, coalesce(events.body, payloads.body)
  from events
  left join payloads on events.body is null and payloads.run_id = events.run_id and payloads.seq = events.seq
 where id > ?
 order by id
"""
_MESSAGES = f"select {', '.join(SeenMessage._fields)} from inbox"
_ATTEMPTS = "select run_id, place, attempt from attempts"
_SNAPSHOTS = "select run_id, seq, body from snapshots"
_VALUES = "select run_id, name, n, attempt, body from streams order by run_id, name, n"
_ENTRIES = f"select key, number from {ENTRIES}"
_WORKERS = "select worker_id, epoch, lease_until from workers"


class Memory:
    """The rows of tables in memory as they were last seen: one that is still the same object has not changed."""

    def __init__(self) -> None:
        self._runs: dict[str, tuple[object, bool, SeenRun]] = {}

    def run(self, run_id: str, row: Any, *, is_latest: bool) -> SeenRun:
        found = self._runs.get(run_id)
        if found is None or found[0] is not row or found[1] is not is_latest:
            seen = SeenRun._make(
                int(is_latest) if name == "is_latest" else getattr(row, name) for name in SeenRun._fields
            )
            found = self._runs[run_id] = (row, is_latest, seen)
        return found[2]


def look(database: Database, after_event: int, known: Mapping[str, Sequence[SeenEvent]], memory: Memory) -> Seen:
    """A look at the database, after the events that are known."""
    if isinstance(database, MemoryDatabase):
        return _look_into(database.tables, after_event, known, memory)
    assert isinstance(database, SqliteDatabase)
    ask = database.db.execute
    make: Any = tuple.__new__
    return Seen(
        {row[0]: make(SeenRun, row) for row in ask(_RUNS)},
        [make(SeenEvent, row) for row in ask(_EVENTS, (after_event,))],
        {row[0]: make(SeenMessage, row) for row in ask(_MESSAGES)},
        [make(SeenAttempt, row) for row in ask(_ATTEMPTS)],
        {row[0]: make(SeenWorker, row) for row in ask(_WORKERS)},
        {row[0]: make(SeenSnapshot, row) for row in ask(_SNAPSHOTS)},
        [make(SeenValue, row) for row in ask(_VALUES)],
        [make(SeenEntry, row) for row in ask(_ENTRIES)],
    )


def _look_into(tables: Tables, after_event: int, known: Mapping[str, Sequence[SeenEvent]], memory: Memory) -> Seen:
    latest = set(tables.latest.rows.values())
    runs = {run_id: memory.run(run_id, row, is_latest=run_id in latest) for run_id, row in tables.runs.rows.items()}
    new = [
        event
        for run_id, events in tables.events.by_run.items()
        for seq, event in sorted(events.items())[len(known.get(run_id, ())) :]
    ]
    return Seen(
        runs,
        [
            SeenEvent(number, event.run_id, event.seq, event.kind, event.place, event.at, event.body)
            for number, event in enumerate(new, start=after_event + 1)
        ],
        {
            number: SeenMessage(number, row.run_id, row.message_id, row.kind, row.body, row.taken_by, row.answer)
            for number, row in sorted(tables.inbox.rows.items())
        },
        [SeenAttempt(*key) for key in tables.attempts.rows],
        {row.worker_id: SeenWorker(row.worker_id, row.epoch, row.lease_until) for row in tables.workers.rows.values()},
        {run_id: SeenSnapshot(run_id, row.seq, row.body) for run_id, (_, row) in tables.snapshots.rows.items()},
        [
            SeenValue(run_id, name, n, value.attempt, value.body)
            for (run_id, name, n), (_, value) in sorted(tables.values.rows.items())
        ],
        [SeenEntry(*entry) for entry in tables.entries.rows.values()],
    )
