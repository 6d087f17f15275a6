"""What the memory store reads: each a plain look at what is committed now."""

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from perdure.errors import RunUnreadable
from perdure.kernel.events import Event
from perdure.kernel.filters import matches
from perdure.kernel.messages import Message
from perdure.kernel.position import Position
from perdure.kernel.quarantine import is_suspect
from perdure.kernel.status import OPEN
from perdure.kernel.traits import TASK_PREFIX
from perdure.stores import rows
from perdure.stores.records import (
    AccessKeyRow,
    AttemptRow,
    CallProgress,
    Census,
    DeadlineRow,
    FoundRuns,
    KeyRow,
    ListenerRow,
    LoadedRun,
    NamespaceRow,
    NewMessage,
    RequestRow,
    RowHolder,
    RunFilter,
    RunQuery,
    RunRow,
    SnapshotRow,
    Standing,
    StreamHead,
    StreamValue,
    StuckFilter,
    UnreadPage,
    WakingWorkflow,
    WorkerRow,
)
from perdure.stores.rows import Garbled
from perdure.stores.rules.filters import run_fields
from tests.simulation.memory.outbox_reads import MemoryOutbox
from tests.simulation.memory.run_statements import is_left_to_a_worker
from tests.simulation.memory.schedule_reads import MemorySchedules
from tests.simulation.memory.tables import InboxRow, Tables


class MemoryAccessKeys:
    """What can be read of the keys of callers: simulated processes have no server."""

    async def key(self, key_id: str) -> AccessKeyRow | None:
        return None

    async def all(self) -> list[AccessKeyRow]:
        return []


class MemoryAnnouncements:
    """What can be read of the workflows that workers announced."""

    def __init__(self, tables: Tables) -> None:
        self.tables = tables

    async def digests(self, namespace: str) -> dict[str, str]:
        return {name: row[1] for (home, name), row in self.tables.announced.rows.items() if home == namespace}

    async def body(self, namespace: str, name: str) -> str | None:
        found = self.tables.announced.rows.get((namespace, name))
        return None if found is None else found[0]


class MemoryRemote:
    """What can be read of remote workers."""

    def __init__(self, tables: Tables) -> None:
        self.tables = tables

    async def worker(self, worker_id: str) -> WorkerRow | None:
        return self.tables.workers.rows.get(worker_id)

    async def owned(self, worker_id: str) -> dict[str, str]:
        runs = sorted(self.tables.runs.rows.values(), key=lambda row: row.run_id)
        return {row.run_id: row.workflow for row in runs if row.owner == worker_id and row.closed_at is None}

    async def stops(self, worker_id: str) -> list[tuple[str, Message]]:
        owned = await self.owned(worker_id)
        found = [row for _, row in sorted(self.tables.inbox.rows.items()) if row.run_id in owned]
        stops = [row for row in found if row.taken_by is None and row.kind in {"CancelRequest", "TerminateRequest"}]
        return [(row.run_id, _message(row)) for row in stops]

    async def due(self, now: int, limit: int) -> list[DeadlineRow]:
        due = [row for row in self.tables.deadlines.rows.values() if row.due_at <= now]
        return [DeadlineRow(*row) for row in sorted(due, key=lambda row: (row.due_at, row.run_id))[:limit]]

    async def deadline(self, run_id: str) -> DeadlineRow | None:
        found = self.tables.deadlines.rows.get(run_id)
        return None if found is None else DeadlineRow(*found)

    async def next_due(self) -> int | None:
        return min((row.due_at for row in self.tables.deadlines.rows.values()), default=None)

    async def standings(self, run_ids: Sequence[str]) -> dict[str, Standing]:
        tables, found = self.tables, {}
        for run_id in run_ids:
            if run_id in tables.runs.rows:
                events = tables.events.by_run.get(run_id)
                last = (max(events), events[max(events)].at) if events else None
                inbox = [tables.inbox.rows[number] for number in tables.inbox.by_run.get(run_id, ())]
                is_unread = any(each.taken_by is None for each in inbox)
                found[run_id] = Standing(last, tables.runs.rows[run_id].messages, is_unread)
        return found

    async def children_at(self, run_ids: Sequence[str], places: Sequence[str]) -> dict[str, dict[str, tuple[str, str]]]:
        found: dict[str, dict[str, tuple[str, str]]] = {}
        for row in sorted(self.tables.runs.rows.values(), key=lambda row: row.run_id):
            parent_id, place = row.parent_id or "", row.parent_place or ""
            if row.parent_id in run_ids and row.parent_place in places:
                run_id, workflow = found.setdefault(parent_id, {}).get(place, (row.run_id, row.workflow))
                found[parent_id][place] = (run_id, min(workflow, row.workflow))
        return found


class MemoryKeys:
    """What is kept under idempotency keys."""

    def __init__(self, tables: Tables) -> None:
        self.tables = tables

    async def kept(self, namespace: str, command: str, key: str) -> KeyRow | None:
        found = self.tables.keys.rows.get((namespace, command, key))
        return None if found is None else found[0]

    async def oldest(self) -> int | None:
        return min((row.keep_until for row, _ in self.tables.keys.rows.values()), default=None)


class MemoryChannels:
    """What can be read of channels."""

    def __init__(self, tables: Tables) -> None:
        self.tables = tables

    async def deferreds(self, run_id: str) -> list[Message]:
        numbers = sorted(self.tables.inbox.by_run.get(run_id, ()))
        found = [self.tables.inbox.rows[number] for number in numbers]
        return [_message(row) for row in found if row.message_id.startswith("deferred:")]

    async def answers(self, numbers: Sequence[int]) -> list[RequestRow]:
        inbox, runs = self.tables.inbox.rows, self.tables.runs.rows
        found = [inbox[number] for number in numbers if number in inbox]
        return [RequestRow(row.number, row.answer, runs[row.run_id].closed_at is not None) for row in found]

    async def secret(self) -> bytes | None:
        return b"the secret of a simulated database"

    async def snapshot(self, run_id: str) -> SnapshotRow | None:
        found = self.tables.snapshots.rows.get(run_id)
        return None if found is None else found[1]

    async def stream_page(self, run_id: str, name: str, after: int, limit: int) -> list[StreamValue]:
        found = [
            value for (of, stream, _), (_, value) in self.tables.values.rows.items() if (of, stream) == (run_id, name)
        ]
        return sorted((value for value in found if value.n > after), key=lambda value: value.n)[:limit]

    async def stream_begin(self, run_id: str, name: str) -> int:
        first = await self.stream_page(run_id, name, 0, 1)
        head = self.tables.heads.rows.get((run_id, name, ""))
        return first[0].n - 1 if first else 0 if head is None else head[1].n

    async def open_histories(self, run_ids: Sequence[str]) -> dict[str, int]:
        events, runs = self.tables.events.by_run, self.tables.runs.rows
        there = [run_id for run_id in run_ids if run_id in runs and runs[run_id].closed_at is None]
        return {run_id: max(events.get(run_id) or (1,)) for run_id in there}

    async def heads(self, run_ids: Sequence[str]) -> dict[str, list[StreamHead]]:
        return {run_id: found for run_id in run_ids if (found := heads_of(self.tables, run_id))}


class MemoryInspection:
    """What can be read of what is in the way of runs."""

    def __init__(self, tables: Tables) -> None:
        self.tables = tables

    async def last_attempt(self, run_id: str, place: str) -> AttemptRow | None:
        found = self.tables.attempts.by_run.get(run_id, {})
        of_place = [row for row in found.values() if row.place == place]
        last = max(of_place, key=lambda row: row.attempt, default=None)
        if last is None:
            return None
        return rows.attempt_of(last.place, last.attempt, last.name, last.failure, last.at, last.next_at)

    async def count_ahead(self, row: RunRow, workflows: Sequence[str], now: int, most: int) -> int:
        has_turns = self.tables.has_turns
        found = [
            each
            for each in self.tables.runs.rows.values()
            if (each.queue, each.namespace, each.owner) == (row.queue, row.namespace, None)
            and each.workflow in workflows
            and each.wake_at is not None
            and each.wake_at < (0 if has_turns else now + 1)
            and not is_suspect(each.losses)
        ]
        at = row.wake_at or 0
        places = self.tables.runs.places
        place = {each.run_id: (places[each.run_id], "") if has_turns else (0, each.run_id) for each in (*found, row)}
        ahead = [(-each.priority, each.wake_at or 0, place[each.run_id]) for each in found]
        turn = (-row.priority, min(at, 0) if has_turns else at, place[row.run_id])
        return min(most, sum(each < turn for each in ahead))

    async def due_kinds(self, namespace: str, now: int) -> list[tuple[str, str]]:
        due = {(row.queue, row.workflow) for row in self.tables.runs.rows.values() if _is_due(row, namespace, now)}
        return sorted(due)

    async def stuck(self, wanted: StuckFilter) -> list[RunRow | RunUnreadable]:
        found = [row for row in self.tables.runs.rows.values() if self._is_stuck(row, wanted)]
        return [*sorted(found, key=lambda row: row.run_id, reverse=True)[: wanted.limit]]

    def _is_stuck(self, row: RunRow, wanted: StuckFilter) -> bool:
        is_left = row.owner in wanted.owners and row.closed_at is None and row.namespace == wanted.namespace
        is_due = (row.queue, row.workflow) in wanted.kinds and _is_due(row, wanted.namespace, wanted.until)
        inbox = self.tables.inbox
        unread = [inbox.rows[number] for number in inbox.by_run.get(row.run_id, ())]
        events = self.tables.events.by_run.get(row.run_id, {})
        moved_at = max(
            row.updated_at,
            *(each.at for each in unread if each.taken_by is None),
            events[max(events)].at if events else 0,
        )
        is_before = wanted.before is None or row.run_id < wanted.before
        return (is_left or is_due) and row.held is None and is_before and moved_at <= wanted.until

    async def row_holders(self, run_id: str) -> list[RowHolder]:
        return []


class MemoryMatching:
    """The runs that match a filter, by the evaluator."""

    def __init__(self, tables: Tables) -> None:
        self.tables = tables

    async def page(self, wanted: RunQuery) -> FoundRuns:
        found = self._found(wanted)[::-1]
        return FoundRuns([*found[: wanted.limit]], len(found))

    async def keys(self, wanted: RunQuery) -> list[object]:
        return [row.run_id for row in self._found(wanted)[::-1]]

    async def among(self, wanted: RunQuery, keys: Sequence[object]) -> list[RunRow | RunUnreadable]:
        return [row for row in self._found(wanted)[::-1] if row.run_id in keys]

    async def count(self, wanted: RunQuery, by: str | None = None) -> dict[object, int]:
        found = self._found(wanted)
        return {None: len(found)} if by is None else dict(Counter(getattr(row, by) for row in found))

    def _found(self, wanted: RunQuery) -> list[RunRow]:
        rows = [self.tables.runs.rows[run_id] for run_id in self.tables.runs.ids]
        mine = [
            row for row in rows if row.namespace == wanted.namespace and row.run_id < (wanted.before or chr(0x10FFFF))
        ]
        return [row for row in mine if matches(wanted.where, run_fields(row))]


def _is_due(row: RunRow, namespace: str, now: int) -> bool:
    """Whether a free run waits for a worker; what has a turn is due at any time."""
    return row.namespace == namespace and row.owner is None and row.wake_at is not None and row.wake_at <= now


def heads_of(tables: Tables, run_id: str) -> list[StreamHead]:
    """How far the streams of a run are."""
    return [tables.heads.rows[key][1] for key in sorted(tables.heads.rows) if key[0] == run_id]


class MemoryNamespaces:
    """What can be read of namespaces."""

    def __init__(self, tables: Tables) -> None:
        self.tables = tables

    async def all(self) -> list[NamespaceRow]:
        return [NamespaceRow(*found) for found in sorted(self.tables.namespaces.rows.items())]

    async def census(self, namespace: str, most: int) -> Census:
        found = [row for row in self.tables.runs.rows.values() if row.namespace == namespace]
        runs = Counter(row.status for row in found if not row.workflow.startswith(TASK_PREFIX))
        queues = {row.queue for row in found if row.status in OPEN}
        return Census({status: min(number, most) for status, number in runs.items()}, sorted(queues))


class MemoryChangelog:
    """What can be read of the log of changes."""

    def __init__(self, tables: Tables) -> None:
        self.tables = tables

    async def listener(self, name: str) -> ListenerRow | None:
        return self.tables.listeners.rows.get(name)

    async def position(self) -> Position:
        return self.tables.position()

    async def named(self, position: Position) -> list[str]:
        return [f"transaction {number}" for number in sorted(position.open)]

    async def changed(self, since: Position) -> tuple[Position, list[str]]:
        found = {run_id for number, run_id in self.tables.changes.rows if not since.has_seen(number)}
        return self.tables.position(), sorted(found)

    async def runs(self, run_ids: Sequence[str]) -> list[RunRow | RunUnreadable]:
        found = self.tables.runs.rows
        return [found[run_id] for run_id in sorted(set(run_ids)) if run_id in found]


class MemoryReads:
    """What can be read of the store."""

    def __init__(self, tables: Tables, url: str) -> None:
        self.tables = tables
        self.url = url
        self.channels = MemoryChannels(tables)
        self.schedules = MemorySchedules(tables)
        self.outbox = MemoryOutbox(tables)
        self.inspection = MemoryInspection(tables)
        self.namespaces = MemoryNamespaces(tables)
        self.matching = MemoryMatching(tables)
        self.access_keys = MemoryAccessKeys()
        self.keys = MemoryKeys(tables)
        self.remote = MemoryRemote(tables)
        self.announcements = MemoryAnnouncements(tables)
        self.changelog = MemoryChangelog(tables)

    async def load_runs(self, run_ids: Sequence[str], worker_id: str) -> list[LoadedRun | RunUnreadable]:
        owned = [row for row in self._rows(run_ids) if row.owner == worker_id]
        found = [self._load(row) for row in sorted(owned, key=lambda row: (-row.priority, row.run_id))]
        return sorted(found, key=lambda each: isinstance(each, RunUnreadable))

    def _load(self, row: RunRow) -> LoadedRun | RunUnreadable:
        try:
            rows.check_start(row)
            return LoadedRun(
                row,
                self._events(row.run_id, 1),
                self._unread(row.run_id),
                self._attempts(row.run_id),
                frozenset(self.tables.runs.children.get(row.run_id, ())),
                self._progress(row.run_id),
                self._unanswered(row.run_id),
                heads_of(self.tables, row.run_id) or (),
            )
        except Garbled as error:
            return RunUnreadable(self.url, row.run_id, row.workflow_id, str(error))

    def _unanswered(self, run_id: str) -> frozenset[str]:
        found = [self.tables.inbox.rows[number] for number in self.tables.inbox.by_run.get(run_id, ())]
        is_open = [
            row for row in found if row.kind == "RequestSent" and row.taken_by is not None and row.answer is None
        ]
        return frozenset(row.message_id for row in is_open)

    @contextmanager
    def _readable(self, run_id: str, id: str) -> Iterator[None]:
        try:
            yield
        except Garbled as error:
            raise RunUnreadable(self.url, run_id, id, str(error)) from None

    def _rows(self, run_ids: Iterable[str]) -> list[RunRow]:
        """Those of the given runs that are there, by id."""
        found = self.tables.runs.rows
        return [found[run_id] for run_id in sorted(set(run_ids)) if run_id in found]

    def _events(self, run_id: str, after: int, limit: int | None = None) -> list[Event]:
        found = self.tables.events.by_run.get(run_id, {})
        events = [found[seq] for seq in sorted(found) if seq > after][:limit]
        return [rows.event_of(e.seq, e.kind, e.place, e.at, e.body) for e in events]

    def _unread(self, run_id: str) -> list[Message]:
        numbers = sorted(self.tables.inbox.by_run.get(run_id, ()))
        found = [self.tables.inbox.rows[number] for number in numbers]
        return [_message(row) for row in found if row.taken_by is None]

    def _attempts(self, run_id: str) -> list[AttemptRow]:
        found = self.tables.attempts.by_run.get(run_id, {})
        return [
            rows.attempt_of(r.place, r.attempt, r.name, r.failure, r.at, r.next_at)
            for r in (found[key] for key in sorted(found))
        ]

    def _progress(self, run_id: str) -> list[CallProgress]:
        found = self.tables.progress.by_run.get(run_id, {})
        return [found[place] for place in sorted(found)]

    async def owned_runs(self, worker_id: str) -> list[str]:
        return sorted(self.tables.runs.owned.get(worker_id, ()))

    async def new_messages(self, worker_id: str, after: int) -> tuple[list[NewMessage], int]:
        inbox, runs = self.tables.inbox, self.tables.runs.rows
        found: list[NewMessage] = []
        for number in inbox.numbers[bisect_right(inbox.numbers, after) :]:
            row = inbox.rows[number]
            run = runs.get(row.run_id)
            if row.taken_by is None and run is not None and run.owner == worker_id:
                found.append(NewMessage(row.run_id, self._message_or_not(row), run.messages))
        return found, self._last_message()

    def _message_or_not(self, row: InboxRow) -> Message | RunUnreadable:
        try:
            return _message(row)
        except Garbled as error:
            return RunUnreadable(self.url, row.run_id, row.run_id, str(error))

    async def last_message(self) -> int:
        return self._last_message()

    def _last_message(self) -> int:
        numbers = self.tables.inbox.numbers
        return numbers[-1] if numbers else 0

    async def next_wake(
        self, namespace: str, queues: Sequence[str], workflows: Sequence[str], *, suspects: bool = False
    ) -> int | None:
        def is_wanted(row: RunRow) -> bool:
            return row.held is None and row.namespace == namespace and row.workflow in workflows

        runs = self.tables.runs
        indexes = [runs.ripe, runs.suspected] if suspects else [runs.ripe]
        levels = [level for index in indexes for queue in queues for level in index.get(queue, {}).values()]
        first = [next((at for at, _, run_id in level if is_wanted(runs.rows[run_id])), None) for level in levels]
        # Below zero are turns, of which none is a time.
        return min((max(at, -1) for at in first if at is not None), default=None)

    async def run(self, namespace: str, run_id: str) -> RunRow | None:
        row = self.tables.runs.rows.get(run_id)
        return None if row is None or row.namespace != namespace else row

    async def latest_run(self, namespace: str, workflow_id: str) -> RunRow | None:
        latest = self.tables.latest.rows.get((namespace, workflow_id))
        return None if latest is None else self.tables.runs.rows[latest]

    async def list_runs(self, wanted: RunFilter) -> list[RunRow | RunUnreadable]:
        ids = self.tables.runs.ids
        end = len(ids) if wanted.before is None else bisect_left(ids, wanted.before)
        found: list[RunRow | RunUnreadable] = []
        for place in range(end - 1, -1, -1):
            if len(found) == wanted.limit:
                break
            row = self.tables.runs.rows[ids[place]]
            if _is_listed(row, wanted):
                found.append(row)
        return found

    async def held_counts(self, namespace: str) -> dict[str, int]:
        rows = self.tables.runs.rows.values()
        return dict(Counter(row.held for row in rows if row.held is not None and row.namespace == namespace))

    async def overdue(self, namespace: str, now: int, limit: int) -> list[RunRow]:
        runs = self.tables.runs
        found = [runs.rows[run_id] for run_id in runs.closing]
        late = [
            (row.close_at, runs.places[row.run_id], row)
            for row in found
            if row.close_at is not None and row.close_at <= now and row.namespace == namespace
            if not (row.close_as == "TIMED_OUT" and is_left_to_a_worker(row))
        ]
        return [row for _, _, row in sorted(late, key=lambda entry: entry[:2])[:limit]]

    async def next_close(self, namespace: str, now: int) -> int | None:
        found = [self.tables.runs.rows[run_id] for run_id in self.tables.runs.closing]
        later = [row.close_at for row in found if row.namespace == namespace and (row.close_at or 0) > now]
        return min((at for at in later if at is not None), default=None)

    async def ended_or_held(self, run_ids: Sequence[str]) -> list[RunRow | RunUnreadable]:
        return [row for row in self._rows(run_ids) if row.closed_at is not None or row.held is not None]

    async def events(self, row: RunRow, after: int, limit: int) -> list[Event]:
        with self._readable(row.run_id, row.workflow_id):
            found = self._events(row.run_id, after, limit - (after < 1))
            if after < 1:
                found.insert(0, rows.first_event(row))
            closing = rows.closing_event(row) if len(found) < limit else None
        if closing is not None and closing.seq > after:
            found.append(closing)
        return found[:limit]

    async def last_event(self, run_id: str) -> tuple[int, int] | None:
        found = self.tables.events.by_run.get(run_id)
        return (max(found), found[max(found)].at) if found else None

    async def attempts(self, run_id: str) -> list[AttemptRow]:
        with self._readable(run_id, run_id):
            return self._attempts(run_id)

    async def progress(self, run_ids: Sequence[str]) -> dict[str, list[CallProgress]]:
        return {run_id: self._progress(run_id) for run_id in run_ids if run_id in self.tables.progress.by_run}

    async def unread(self, run_id: str) -> list[Message]:
        with self._readable(run_id, run_id):
            return self._unread(run_id)

    async def unread_page(self, run_id: str, after: int, limit: int) -> UnreadPage:
        run = self.tables.runs.rows.get(run_id)
        with self._readable(run_id, run_id):
            found = [message for message in self._unread(run_id) if message.number > after]
        return UnreadPage(found[:limit], 0 if run is None else run.messages)

    async def count_unread(self, run_id: str, most: int) -> int:
        return min(len(self._unread(run_id)), most)

    async def set_aside(self, run_id: str) -> list[Message]:
        numbers = sorted(self.tables.inbox.by_run.get(run_id, ()))
        found = [self.tables.inbox.rows[number] for number in numbers]
        with self._readable(run_id, run_id):
            return [_message(row) for row in found if row.taken_by == 0 and row.kind == "SignalSent"]

    async def waking_workflows(self, namespace: str, queue: str, most: int) -> list[WakingWorkflow]:
        runs = self.tables.runs
        free = [runs.rows[run_id] for level in runs.ripe.get(queue, {}).values() for _, _, run_id in level]
        wanted = [row for row in free if row.held is None and row.namespace == namespace and row.wake_at is not None]
        first: dict[str, WakingWorkflow] = {}
        for row in sorted(wanted, key=lambda row: (-row.priority, row.workflow, row.wake_at or 0)):
            first.setdefault(row.workflow, WakingWorkflow(row.workflow, row.wake_at or 0, row.updated_at))
        return list(first.values())[:most]

    async def owners(self) -> list[object]:
        return [*sorted(owner for owner, owned in self.tables.runs.owned.items() if owned)]

    async def workers(self) -> list[WorkerRow]:
        return sorted(self.tables.workers.rows.values(), key=lambda worker: (worker.started_at, worker.worker_id))


def _message(row: InboxRow) -> Message:
    return rows.message_of(row.number, row.message_id, row.kind, row.body, row.at)


def _is_listed(row: RunRow, wanted: RunFilter) -> bool:
    is_kept_out = wanted.without is not None and row.workflow.startswith(wanted.without)
    if is_kept_out and row.held not in wanted.held:
        return False
    is_in_state = row.status in wanted.status or row.held in wanted.held or not (wanted.status or wanted.held)
    if row.namespace != wanted.namespace or not is_in_state:
        return False
    return all(
        getattr(wanted, column) in {None, getattr(row, column)}
        for column in ("workflow", "workflow_id", "entity_id", "correlation_id", "parent_id", "schedule")
    )
