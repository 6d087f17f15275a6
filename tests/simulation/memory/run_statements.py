"""Statements on runs and their events: what a batch can do to them.

In:   a view and an operation.
Out:  whether the row was found as the operation expects it, or what it is to tell.

Each says what the named query of the same purpose says in `stores/sql/writes.sql`.
"""

from collections.abc import Callable, Iterable, Sequence

from msgspec.structs import replace

from perdure.stores.answers import Applied, Moved
from perdure.stores.operations import (
    Annotate,
    AppendEvent,
    FreeMismatches,
    HoldRun,
    InsertRichRun,
    InsertRun,
    NoteCancel,
    NoteWaiting,
    ParkRun,
    RecordAttempt,
    SupersedeRun,
)
from perdure.stores.records import RunRow
from tests.simulation.memory.view import Blocked, Refused, Steps, View


def find_run(view: View, run_id: str, is_right: Callable[[RunRow], bool]) -> Steps[RunRow | None]:
    """The run if it is as expected, for this transaction to change; None when it is not, or not any more."""
    row = view.runs.get(run_id)
    if row is None or not is_right(row):
        return None
    if view.runs.is_taken(run_id):
        yield from view.runs.wait(run_id)
        row = view.runs.get(run_id)
        if row is None or not is_right(row):
            return None
    view.runs.hold(run_id)
    return row


def find_runs(view: View, run_ids: Iterable[str], is_right: Callable[[RunRow], bool]) -> Steps[list[RunRow]]:
    """Those of the given runs that are as expected when the statement begins, and still when its turn comes."""
    expected = [run_id for run_id in run_ids if (row := view.runs.get(run_id)) is not None and is_right(row)]
    found = []
    for run_id in expected:
        row = yield from find_run(view, run_id, is_right)
        if row is not None:
            found.append(row)
    return found


# Beginning


def insert_run(view: View, run: InsertRun | InsertRichRun) -> Steps[bool]:
    """Whether it was inserted; it is not when its run_id or its workflow_id is taken."""
    key = (run.namespace, run.workflow_id)
    while (by := _holder(view, run.run_id, key)) is not None:
        yield Blocked(by)
    if view.runs.get(run.run_id) is not None or view.latest.get(key) is not None:
        return False
    view.take_place(run.run_id)
    view.runs.put(run.run_id, _new_row(view, run))
    view.latest.put(key, run.run_id)
    return True


def _holder(view: View, run_id: str, key: tuple[str, str]) -> View | None:
    """Who decides whether these keys are free: nobody knows before that transaction ends."""
    if view.runs.is_taken(run_id):
        return view.runs.table.held[run_id]
    if view.latest.is_taken(key):
        return view.latest.table.held[key]
    latest = view.latest.get(key)
    if latest is not None and view.runs.is_taken(latest):
        return view.runs.table.held[latest]
    return None


def at_once_or_later(view: View, wake_at: int | None, now: int) -> int | None:
    """When a run wakes; who writes a time that has come by its own clock means at once."""
    return wake_at if wake_at is None or wake_at > now else view.at_once(wake_at)


def _new_row(view: View, run: InsertRun | InsertRichRun) -> RunRow:
    row = RunRow(
        run_id=run.run_id,
        namespace=run.namespace,
        workflow_id=run.workflow_id,
        workflow=run.workflow,
        queue=run.queue,
        status=run.status,
        held=None,
        held_report=None,
        owner=run.owner,
        wake_at=at_once_or_later(view, run.wake_at, run.created_at),
        waiting=None,
        messages=0,
        priority=run.priority,
        entity_id=None,
        correlation_id=None,
        attributes=None,
        step=None,
        input=run.input,
        outcome=None,
        seed=run.seed,
        last_seq=None,
        created_at=run.created_at,
        updated_at=run.created_at,
        closed_at=None,
        begun_at=None if run.owner is None else run.created_at,
    )
    return row if isinstance(run, InsertRun) else _with_traits(row, run)


def _with_traits(row: RunRow, run: InsertRichRun) -> RunRow:
    return replace(
        row,
        parent_id=run.parent_id,
        parent_place=run.parent_place,
        on_parent_close=run.on_parent_close,
        entity_id=run.entity_id,
        correlation_id=run.correlation_id,
        attributes=run.attributes,
        initial_attributes=run.attributes,
        timeout_ms=run.timeout_ms,
        delayed_until=run.delayed_until,
        close_at=run.close_at,
        close_as=None if run.close_at is None else "TIMED_OUT",
        continued_from=run.continued_from,
    )


def supersede_run(view: View, supersede: SupersedeRun) -> Steps[bool]:
    """Whether the run made way for another one under its workflow_id."""

    def may_go(row: RunRow) -> bool:
        return row.closed_at is not None or (row.owner is not None and row.owner == supersede.owner)

    row = yield from find_run(view, supersede.run_id, may_go)
    if row is None:
        return False
    key = (row.namespace, row.workflow_id)
    if view.latest.get(key) == row.run_id:
        view.latest.put(key, None)
    return True


# Going on


def append_events(view: View, appends: Sequence[AppendEvent]) -> Steps[None]:
    events = view.events
    for event in appends:
        key = (event.run_id, event.seq)
        if events.is_taken(key):
            yield from events.wait(key)
        if events.get(key) is not None:
            raise Refused(f"run {event.run_id} has an event {event.seq} already")
        events.put(key, event)


def record_attempts(view: View, records: Sequence[RecordAttempt]) -> Steps[None]:
    attempts = view.attempts
    for record in records:
        key = (record.run_id, record.place, record.attempt)
        if attempts.is_taken(key):
            yield from attempts.wait(key)
        if attempts.get(key) is None:
            attempts.put(key, record)


def note_waiting(view: View, note: NoteWaiting) -> Steps[Moved | None]:
    row = yield from find_run(view, note.run_id, lambda row: row.owner == note.worker_id)
    if row is None:
        return Moved()
    view.runs.put(row.run_id, replace(row, waiting=note.waiting, updated_at=note.at))
    return None


def annotate(view: View, note: Annotate) -> Steps[Moved | None]:
    row = yield from find_run(view, note.run_id, lambda row: row.owner == note.worker_id)
    if row is None:
        return Moved()
    changed = replace(row, attributes=note.attributes, step=note.step, waiting=None, updated_at=note.at)
    view.runs.put(row.run_id, changed)
    return None


def note_cancel(view: View, note: NoteCancel) -> Steps[None]:
    row = yield from find_run(view, note.run_id, lambda row: row.closed_at is None)
    if row is None:
        return
    is_earlier = note.close_at is not None and (row.close_at is None or note.close_at < row.close_at)
    view.runs.put(
        row.run_id,
        replace(
            row,
            cancel_requested_at=note.at if row.cancel_requested_at is None else row.cancel_requested_at,
            cancel_reason=note.reason if row.cancel_reason is None else row.cancel_reason,
            close_as="CANCELLED" if is_earlier else row.close_as,
            close_at=note.close_at if is_earlier else row.close_at,
        ),
    )


# Letting go


def park_run(view: View, park: ParkRun) -> Steps[Moved | None]:
    def is_right(row: RunRow) -> bool:
        return row.owner == park.worker_id and (park.messages is None or row.messages == park.messages)

    row = yield from find_run(view, park.run_id, is_right)
    if row is None:
        return Moved()
    parked = replace(
        row,
        status=park.status,
        owner=None,
        wake_at=at_once_or_later(view, park.wake_at, park.at),
        waiting=park.waiting,
        # One that got as far as to wait is no suspect any more.
        losses=0 if park.status == "SUSPENDED" else row.losses,
        updated_at=park.at,
    )
    view.runs.put(row.run_id, parked)
    if park.status == "SUSPENDED":
        view.deaths.put(row.run_id, None)
    return None


def hold_run(view: View, hold: HoldRun) -> Steps[Moved | None]:
    row = yield from find_run(view, hold.run_id, lambda row: row.owner == hold.worker_id)
    if row is None:
        return Moved()
    held = replace(
        row,
        status="SUSPENDED",
        owner=None,
        wake_at=None,
        held=hold.reason,
        held_report=hold.report,
        updated_at=hold.at,
    )
    view.runs.put(row.run_id, held)
    return None


def free_mismatches(view: View, free: FreeMismatches) -> Steps[Applied]:
    def is_right(row: RunRow) -> bool:
        return row.held == "mismatch" and row.namespace == free.namespace and row.workflow in free.workflows

    found = yield from find_runs(view, sorted({**view.tables.runs.held_back, **view.runs.own}), is_right)
    for row in found:
        freed = replace(row, held=None, held_report=None, status="PENDING", wake_at=view.at_once(free.now))
        view.runs.put(row.run_id, freed)
    return Applied(len(found))
