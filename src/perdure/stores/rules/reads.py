"""What every store can be asked, whatever the database.

In:   a database that answers questions, each as it can.
Out:  records.

A row that cannot be read raises Garbled; then the same is asked once more, row by row, and what cannot be read
is a value among the others, or raised when it was asked for by itself.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, TypeVar

import msgspec

from perdure.errors import RunUnreadable
from perdure.kernel.events import Event
from perdure.kernel.messages import Message
from perdure.stores import rows
from perdure.stores.listing import Dialect, counting, leads_of, listing
from perdure.stores.records import (
    EVENTS_PAGE,
    UNREAD_PAGE,
    AttemptRow,
    CallProgress,
    LoadedRun,
    NewMessage,
    RequestRow,
    RunFilter,
    RunRow,
    SnapshotRow,
    StreamHead,
    StreamValue,
    UnreadPage,
    WakingWorkflow,
    WorkerRow,
)
from perdure.stores.rows import Garbled
from perdure.stores.rules.access_keys import AccessKeyReads
from perdure.stores.rules.announcements import AnnouncementReads
from perdure.stores.rules.changelog import Changelog
from perdure.stores.rules.finding import MatchingReads
from perdure.stores.rules.idempotency_keys import KeyReads
from perdure.stores.rules.inspection import InspectionReads
from perdure.stores.rules.namespaces import NamespaceReads
from perdure.stores.rules.outbox_reads import OutboxReads
from perdure.stores.rules.questions import Ask, Query, Question, Several, Steps, Text
from perdure.stores.rules.remote_reads import RemoteReads
from perdure.stores.rules.run_rows import each_run, quick_rows, run_rows_of, unreadable
from perdure.stores.rules.schedule_reads import ScheduleReads
from perdure.stores.unreadable import worker_row

T = TypeVar("T")

# No run has so high a priority.
ABOVE_ALL = 2**62
PARTS_OF_RUNS = ("children_of", "events_of", "unread_of", "attempts_of", "progress_of", "unanswered_of", "heads_of")


class Reads:
    """What can be read of a store, in the words of its database."""

    def __init__(self, url: str, ask: Ask, dialect: Dialect) -> None:
        self.url = url
        self.ask = ask
        self.dialect = dialect
        self.channels = ChannelReads(url, ask)
        self.inspection = InspectionReads(url, ask, self._runs)
        self.namespaces = NamespaceReads(ask)
        self.matching = MatchingReads(url, ask, dialect)
        self.access_keys = AccessKeyReads(ask)
        self.announcements = AnnouncementReads(ask)
        self.keys = KeyReads(ask)
        self.changelog = Changelog(ask, self._runs)
        self.schedules = ScheduleReads(ask)
        self.outbox = OutboxReads(ask)
        self.remote = RemoteReads(ask)

    # Runs of a worker

    async def load_runs(self, run_ids: Sequence[str], worker_id: str) -> list[LoadedRun | RunUnreadable]:
        return await self.ask(lambda: _load_all(run_ids, worker_id), lambda: _load_singly(self.url, run_ids, worker_id))

    async def owned_runs(self, worker_id: str) -> list[str]:
        found = await _rows(self.ask, "owned_run_ids", worker_id=worker_id)
        # One whose id is no text could not be asked for.
        return [run_id for (run_id,) in found if type(run_id) is str]

    async def new_messages(self, worker_id: str, after: int) -> tuple[list[NewMessage], int]:
        return await self.ask(
            lambda: _new_messages(worker_id, after, lambda _, *row: rows.message_of(*row)),
            lambda: _new_messages(worker_id, after, partial(_message_or_not, self.url)),
        )

    async def last_message(self) -> int:
        ((number,),) = await _rows(self.ask, "last_message")
        return int(number)

    async def next_wake(
        self, namespace: str, queues: Sequence[str], workflows: Sequence[str], *, suspects: bool = False
    ) -> int | None:
        found = await self.ask(lambda: next_wakes(namespace, queues, workflows, suspects=suspects))
        # A time that is no number never comes; what is below zero is a turn.
        return min((max(at, -1) for at in found if type(at) is int), default=None)

    # Runs for everybody

    async def run(self, namespace: str, run_id: str) -> RunRow | None:
        return _only(await self._runs(Query("run", {"namespace": namespace, "run_id": run_id})))

    async def latest_run(self, namespace: str, workflow_id: str) -> RunRow | None:
        return _only(await self._runs(Query("latest_run", {"namespace": namespace, "workflow_id": workflow_id})))

    async def list_runs(self, wanted: RunFilter) -> list[RunRow | RunUnreadable]:
        leads = leads_of(wanted)
        if len(leads) > 1:
            counted = Text(*counting(wanted, leads))
            ((*counts,),) = await self.ask(lambda: _found(counted))
            leads = [leads[counts.index(min(counts))]]
        return await self._runs(Text(*listing(wanted, self.dialect, leads[0] if leads else None)))

    async def held_counts(self, namespace: str) -> dict[str, int]:
        return dict(await _rows(self.ask, "held_counts", namespace=namespace))

    async def overdue(self, namespace: str, now: int, limit: int) -> list[RunRow]:
        sought = {"namespace": namespace, "now": now, "limit": limit}
        found = await self._runs(Query("overdue", sought), Query("overdue_all", sought))
        return [row for row in found if isinstance(row, RunRow)][:limit]

    async def next_close(self, namespace: str, now: int) -> int | None:
        ((at,),) = await _rows(self.ask, "next_close", namespace=namespace, now=now)
        # A time that is no number never comes.
        return at if type(at) is int else None

    async def ended_or_held(self, run_ids: Sequence[str]) -> list[RunRow | RunUnreadable]:
        return await self._runs(Query("ended_or_held", {"run_ids": run_ids}))

    async def _runs(self, question: Question, slowly: Question | None = None) -> list[RunRow | RunUnreadable]:
        """The runs a query finds, those that cannot be read as such."""
        return await self.ask(lambda: run_rows_of(question), lambda: each_run(self.url, slowly or question))

    # What belongs to a run

    async def events(self, row: RunRow, after: int, limit: int) -> list[Event]:
        asked = {"run_id": row.run_id, "after": after, "limit": limit - (after < 1)}
        found = await _of_run(self, row.run_id, row.workflow_id, Query("events", asked), rows.event_of)
        try:
            if after < 1:
                found.insert(0, rows.first_event(row))
            closing = rows.closing_event(row) if len(found) < limit else None
        except Garbled as error:
            raise unreadable(self.url, row.run_id, row.workflow_id, error) from None
        if closing is not None and closing.seq > after:
            found.append(closing)
        return found[:limit]

    async def last_event(self, run_id: str) -> tuple[int, int] | None:
        found = await _rows(self.ask, "last_event", run_id=run_id)
        return tuple(found[0]) if found and type(found[0][0]) is type(found[0][1]) is int else None

    async def attempts(self, run_id: str) -> list[AttemptRow]:
        return await _of_run(self, run_id, run_id, Query("attempts", {"run_id": run_id}), rows.attempt_of)

    async def progress(self, run_ids: Sequence[str]) -> dict[str, list[CallProgress]]:
        def ask() -> Steps[dict[str, list[CallProgress]]]:
            return _by_run((yield Query("progress_of", {"run_ids": run_ids})).rows, rows.progress_of)

        try:
            return await self.ask(ask)
        except Garbled as error:
            raise unreadable(self.url, run_ids[0], run_ids[0], error) from None

    async def unread(self, run_id: str) -> list[Message]:
        found: list[Message] = []
        is_last = False
        while not is_last:
            page, _ = await self.unread_page(run_id, found[-1].number if found else 0, UNREAD_PAGE)
            found += page
            is_last = len(page) < UNREAD_PAGE
        return found

    async def unread_page(self, run_id: str, after: int, limit: int) -> UnreadPage:
        def ask() -> Steps[UnreadPage]:
            found = (yield Query("unread_page", {"run_id": run_id, "after": after, "limit": limit})).rows
            messages = [rows.message_of(*row) for _, *row in found if row[0] is not None]
            return UnreadPage(messages, found[0][0] if found else 0)

        try:
            return await self.ask(ask)
        except Garbled as error:
            raise unreadable(self.url, run_id, run_id, error) from None

    async def count_unread(self, run_id: str, most: int) -> int:
        ((count,),) = await _rows(self.ask, "count_unread", run_id=run_id, most=most)
        return int(count)

    async def set_aside(self, run_id: str) -> list[Message]:
        return await _of_run(self, run_id, run_id, Query("set_aside", {"run_id": run_id}), rows.message_of)

    # Workers

    async def waking_workflows(self, namespace: str, queue: str, most: int) -> list[WakingWorkflow]:
        found = await self.ask(lambda: _waking_workflows(namespace, queue, most))
        # What is no text or no number there is a finding of the audit.
        return [
            each for each in found if type(each.workflow) is str and type(each.updated_at) is type(each.wake_at) is int
        ]

    async def owners(self) -> list[object]:
        return [owner for (owner,) in await _rows(self.ask, "owners")]

    async def workers(self) -> list[WorkerRow]:
        return await self.ask(_workers, _each_worker)


async def _rows(ask: Ask, name: str, **parameters: object) -> Sequence[Any]:
    return await ask(lambda: _found(Query(name, parameters)))


class ChannelReads:
    """What can be read of the channels between runs and the world outside."""

    def __init__(self, url: str, ask: Ask) -> None:
        self.url = url
        self.ask = ask

    async def deferreds(self, run_id: str) -> list[Message]:
        return await _of_run(self, run_id, run_id, Query("deferreds_of", {"run_id": run_id}), rows.message_of)

    async def answers(self, numbers: Sequence[int]) -> list[RequestRow]:
        found = await _rows(self.ask, "answers", numbers=numbers)
        return [RequestRow(number, answer, bool(has_ended)) for number, answer, has_ended in found]

    async def secret(self) -> bytes | None:
        found = await _rows(self.ask, "secret")
        return found[0][0] if found and isinstance(found[0][0], bytes) else None

    async def snapshot(self, run_id: str) -> SnapshotRow | None:
        found = await _of_run(self, run_id, run_id, Query("snapshot", {"run_id": run_id}), rows.snapshot_of)
        return found[0] if found else None

    async def stream_page(self, run_id: str, name: str, after: int, limit: int) -> list[StreamValue]:
        asked = {"run_id": run_id, "name": name, "after": after, "limit": limit}
        return await _of_run(self, run_id, run_id, Query("stream_page", asked), rows.stream_value_of)

    async def stream_begin(self, run_id: str, name: str) -> int:
        ((n,),) = await self.ask(lambda: _found(Query("stream_begin", {"run_id": run_id, "name": name})))
        return int(n)

    async def open_histories(self, run_ids: Sequence[str]) -> dict[str, int]:
        return dict(await _rows(self.ask, "open_histories", run_ids=run_ids))

    async def heads(self, run_ids: Sequence[str]) -> dict[str, list[StreamHead]]:
        def ask() -> Steps[dict[str, list[StreamHead]]]:
            return _by_run((yield Query("heads_of", {"run_ids": run_ids})).rows, rows.head_of)

        try:
            return await self.ask(ask)
        except Garbled as error:
            raise unreadable(self.url, run_ids[0], run_ids[0], error) from None


def _found(question: Question) -> Steps[Sequence[Any]]:
    return (yield question).rows


def _message_or_not(url: str, run_id: str, *row: Any) -> Message | RunUnreadable:
    try:
        return rows.message_of(*row)
    except Garbled as error:
        return unreadable(url, run_id, None, error)


async def _of_run(
    reads: Reads | ChannelReads, run_id: str, id: str, question: Query, record: Callable[..., T]
) -> list[T]:
    """Records of one run; RunUnreadable."""

    def ask() -> Steps[list[T]]:
        found = yield question
        return [record(*row) for row in found.rows]

    try:
        return await reads.ask(ask)
    except Garbled as error:
        raise unreadable(reads.url, run_id, id, error) from None


def _only(found: list[RunRow | RunUnreadable]) -> RunRow | None:
    """The one that was found, if there is one; RunUnreadable."""
    if not found:
        return None
    if isinstance(found[0], RunUnreadable):
        raise found[0]
    return found[0]


# Bringing runs back to life


def _load_all(run_ids: Sequence[str], worker_id: str) -> Steps[list[LoadedRun | RunUnreadable]]:
    return [*(yield from _load(run_ids, worker_id))]


def _load_singly(url: str, run_ids: Sequence[str], worker_id: str) -> Steps[list[LoadedRun | RunUnreadable]]:
    found: list[LoadedRun] = []
    troubles: list[RunUnreadable] = []
    for run_id in run_ids:
        try:
            found += yield from _load([run_id], worker_id)
        except Garbled as error:
            ((id,),) = (yield Query("workflow_id", {"run_id": run_id})).rows
            troubles.append(unreadable(url, run_id, id, error))
    return [*sorted(found, key=lambda each: _by_priority(each.row)), *troubles]


def _load(run_ids: Sequence[str], worker_id: str) -> Steps[list[LoadedRun]]:
    found = yield from quick_rows(Query("owned_runs", {"run_ids": run_ids, "worker_id": worker_id}))
    owned = sorted(found, key=_by_priority)
    ids = [row.run_id for row in owned]
    for row in owned:
        rows.check_start(row)
    # Of one that may have many, messages are read a page at a time, while other runs go on.
    few = [row.run_id for row in owned if row.messages <= UNREAD_PAGE]
    asked = {"run_ids": ids, "few_ids": few, "most": EVENTS_PAGE}
    parts = (yield Several(PARTS_OF_RUNS, asked)).rows
    of_children, of_events, unread, failed, under_way, unanswered, published = parts
    children: dict[str, set[str]] = {}
    for parent_id, run_id in of_children:
        if type(run_id) is not str:
            raise Garbled(f"one of its children has the id {run_id!r}, which is no text")
        children.setdefault(parent_id, set()).add(run_id)
    events = _by_run((yield from _with_payloads(of_events)), rows.event_of)
    for run_id, first in events.items():
        if first[-1].seq == EVENTS_PAGE:
            yield from _read_to_end(run_id, first)
    messages: dict[str, list[Message] | None] = dict.fromkeys(set(ids) - set(few))
    messages |= _by_run(unread, rows.message_of)
    attempts = _by_run(failed, rows.attempt_of)
    progress = _by_run(under_way, rows.progress_of)
    open_requests = _by_run(unanswered, str)
    heads = _by_run(published, rows.head_of)
    return [
        LoadedRun(
            row,
            events.get(row.run_id, []),
            messages.get(row.run_id, []),
            attempts.get(row.run_id, []),
            frozenset(children.get(row.run_id, ())),
            progress.get(row.run_id, []),
            frozenset(open_requests.get(row.run_id, ())),
            heads.get(row.run_id, ()),
        )
        for row in owned
    ]


def _read_to_end(run_id: str, events: list[Event]) -> Steps[None]:
    """The rest of a long history, a page at a time: what is done with one keeps nobody waiting for long."""
    is_last = False
    while not is_last:
        page = yield Query("events", {"run_id": run_id, "after": events[-1].seq, "limit": EVENTS_PAGE})
        events += [rows.event_of(*row) for row in page.rows]
        is_last = page.count < EVENTS_PAGE


def _with_payloads(of_events: Sequence[Sequence[Any]]) -> Steps[Sequence[Sequence[Any]]]:
    """Events with the bodies that are too large for their rows, where the database was not asked for them yet."""
    lacking = sorted({run_id for run_id, *_, body in of_events if body is None})
    if not lacking:
        return of_events
    payloads = yield Query("payloads_of_events", {"run_ids": lacking, "most": EVENTS_PAGE})
    bodies = {(run_id, seq): body for run_id, seq, body in payloads.rows}
    return [(*row[:-1], bodies.get((row[0], row[1]))) if row[-1] is None else row for row in of_events]


def _by_run(found: Iterable[Sequence[Any]], record: Callable[..., T]) -> dict[str, list[T]]:
    by_run: dict[str, list[T]] = {}
    for run_id, *columns in found:
        by_run.setdefault(run_id, []).append(record(*columns))
    return by_run


def _by_priority(row: RunRow) -> tuple[int, str]:
    return -row.priority, row.run_id


# Watching


def _new_messages(
    worker_id: str, after: int, read: Callable[..., Message | RunUnreadable]
) -> Steps[tuple[list[NewMessage], int]]:
    ((last,),) = (yield Query("last_message", {})).rows
    found = (yield Query("new_messages", {"worker_id": worker_id, "after": after})).rows
    news = [NewMessage(run_id, read(run_id, *row), had) for run_id, had, *row in found]
    return news, last


def next_wakes(
    namespace: str, queues: Sequence[str], workflows: Sequence[str], *, suspects: bool
) -> Steps[list[int | None]]:
    """When the next free run of each queue becomes ripe."""
    known = {"namespace": namespace, "workflows": workflows}
    found: list[int | None] = []
    for queue in queues:
        found += [at for (at,) in (yield Query("next_wakes", known | {"queue": queue})).rows]
    for queue in queues if suspects else ():
        found += [at for (at,) in (yield Query("next_suspect", known | {"queue": queue})).rows]
    return found


def _waking_workflows(namespace: str, queue: str, most: int) -> Steps[list[WakingWorkflow]]:
    """From one workflow to the next without what is between, level by level, as the index has them."""
    found: dict[str, WakingWorkflow] = {}
    known = {"namespace": namespace, "queue": queue}
    row = (yield Query("next_waking_level", known | {"priority": ABOVE_ALL})).first
    for _ in range(most):
        if row is None:
            break
        level, workflow, wake_at, updated_at = row
        found.setdefault(workflow, WakingWorkflow(workflow, wake_at, updated_at))
        last = known | {"priority": level, "workflow": workflow}
        row = (yield Query("next_waking", last)).first or (yield Query("next_waking_level", last)).first
    return list(found.values())


# Workers


def _workers() -> Steps[list[WorkerRow]]:
    found = yield Query("workers", {})
    try:
        return msgspec.convert(found.dicts(), list[WorkerRow])
    except msgspec.ValidationError as error:
        raise Garbled(str(error)) from None


def _each_worker() -> Steps[list[WorkerRow]]:
    found = [worker_row(columns) for columns in (yield Query("workers", {})).dicts()]
    return [worker for worker in found if worker is not None]
