"""Statements on runs: how they start, go on, are let go and end."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import msgspec
from msgspec.structs import replace

from perdure.kernel.traits import TASK_PREFIX
from perdure.stores.operations import (
    Annotate,
    AppendEvent,
    BeginAttempt,
    ExpectOwner,
    ExpectRun,
    HoldRun,
    InsertRichRun,
    InsertRun,
    NoteLosses,
    NoteUndo,
    NoteWaiting,
    ParkRun,
    RecordAttempt,
    RecordBeat,
)
from perdure.stores.records import CallProgress, RunRow
from perdure.stores.rules.questions import Found
from tests.simulation.memory.statements import (
    at_once_or_later,
    changed,
    find_run,
    find_runs,
    never_waiting,
    rows_of,
    statement,
    untaken,
    update_each,
)
from tests.simulation.memory.view import Blocked, Refused, Steps, View

COLUMNS = RunRow.__struct_fields__

# Beginning


@statement
def supersede_run(view: View, *, run_id: str, owner: str | None) -> Steps[Found]:
    def may_go(row: RunRow) -> bool:
        return row.closed_at is not None or (row.owner is not None and row.owner == owner)

    row = yield from find_run(view, run_id, may_go)
    if row is None:
        return changed(0)
    key = (row.namespace, row.workflow_id)
    if view.latest.get(key) == row.run_id:
        view.latest.put(key, None)
    return changed(1)


@statement
def insert_runs(view: View, rows: Sequence[InsertRun | InsertRichRun]) -> Steps[Found]:
    inserted = 0
    for run in rows:
        inserted += yield from _insert_run(view, run)
    return changed(inserted)


@statement
def insert_rich_runs(view: View, rows: Sequence[InsertRichRun]) -> Steps[Found]:
    return (yield from insert_runs(view, rows))


def _insert_run(view: View, run: InsertRun | InsertRichRun) -> Steps[bool]:
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
    """The transaction that decides whether these keys are free: nobody knows before it ends."""
    if view.runs.is_taken(run_id):
        return view.runs.table.held[run_id]
    if view.latest.is_taken(key):
        return view.latest.table.held[key]
    latest = view.latest.get(key)
    if latest is not None and view.runs.is_taken(latest):
        return view.runs.table.held[latest]
    return None


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
        schedule=run.schedule,
        scheduled_for=run.scheduled_for,
    )


@statement
def put_payloads(view: View, rows: Sequence[tuple[str, str, int, str]]) -> Steps[Found]:
    """What is too large for a row; here a row can hold it nevertheless, so that whoever reads finds it there."""
    put = 0
    for _, run_id, seq, body in rows:
        key = (run_id, seq)
        yield from view.payloads.wait(key)
        if view.payloads.get(key) is None:
            view.payloads.put(key, body)
            put += 1
        row = view.runs.get(run_id)
        if row is not None and seq == 1 and not row.input:
            view.runs.put(run_id, replace(row, input=body))
    return changed(put)


@never_waiting
def run_owner(view: View, *, run_id: str, namespace: str) -> Found:
    row = view.runs.get(run_id)
    return rows_of([] if row is None or row.namespace != namespace else [(row.owner, row.attributes)])


@never_waiting
def run(view: View, *, run_id: str, namespace: str) -> Found:
    row = view.runs.get(run_id)
    return _whole(None if row is None or row.namespace != namespace else row)


@never_waiting
def latest_run(view: View, *, namespace: str, workflow_id: str) -> Found:
    latest = view.latest.get((namespace, workflow_id))
    return _whole(None if latest is None else view.runs.get(latest))


def _whole(row: RunRow | None) -> Found:
    found = [] if row is None else [msgspec.structs.astuple(row)]
    return Found(COLUMNS, found, len(found))


# Going on


@statement
def append_events(view: View, rows: Sequence[AppendEvent]) -> Steps[Found]:
    events = view.events
    for event in rows:
        key = (event.run_id, event.seq)
        if events.is_taken(key):
            yield from events.wait(key)
        if events.get(key) is not None:
            raise Refused(f"run {event.run_id} has an event {event.seq} already")
        events.put(key, event if event.body is not None else event._replace(body=str(view.payloads.get(key))))
    return changed(len(rows))


@statement
def record_attempts(view: View, rows: Sequence[RecordAttempt]) -> Steps[Found]:
    attempts = view.attempts
    recorded = 0
    for record in rows:
        key = (record.run_id, record.place, record.attempt)
        if attempts.is_taken(key):
            yield from attempts.wait(key)
        if attempts.get(key) is None:
            attempts.put(key, record)
            recorded += 1
    return changed(recorded)


@statement
def begin_attempts(view: View, rows: Sequence[BeginAttempt]) -> Steps[Found]:
    for begin in rows:
        yield from _know(view, begin, begun_at=begin.begun_at)
    return changed(len(rows))


@statement
def record_beats(view: View, rows: Sequence[RecordBeat]) -> Steps[Found]:
    for beat in rows:
        yield from _know(view, beat, details=beat.details, beat_at=beat.beat_at)
    return changed(len(rows))


def _know(view: View, of: BeginAttempt | RecordBeat, **columns: object) -> Steps[None]:
    """Put these columns into what is known of a call."""
    key = (of.run_id, of.place)
    if view.progress.is_taken(key):
        yield from view.progress.wait(key)
    _, known = view.progress.get(key) or ("", CallProgress(of.place))
    view.progress.put(key, (of.namespace, replace(known, **columns)))


def _is_owner(row: RunRow, note: Any) -> bool:
    return bool(row.owner == note.worker_id)


@statement
def note_waiting(view: View, rows: Sequence[NoteWaiting]) -> Steps[Found]:
    def note(row: RunRow, note: NoteWaiting) -> RunRow:
        return replace(row, waiting=note.waiting, updated_at=note.at)

    return (yield from update_each(view, rows, _is_owner, note))


@statement
def annotate_runs(view: View, rows: Sequence[Annotate]) -> Steps[Found]:
    def annotate(row: RunRow, note: Annotate) -> RunRow:
        said = replace(row, step=note.step, waiting=None, updated_at=note.at)
        if note.attributes is None:
            return said
        own = None if note.own == note.attributes else note.own
        return replace(said, attributes=note.attributes, own_attributes=own)

    def may(row: RunRow, note: Annotate) -> bool:
        return _is_owner(row, note) and (note.attributes is None or (row.attributes or "") == (note.before or ""))

    return (yield from update_each(view, rows, may, annotate))


@statement
def set_attributes(
    view: View, *, run_id: str, namespace: str, before: str | None, attributes: str, at: int
) -> Steps[Found]:
    del at  # the run has not moved

    def is_right(row: RunRow) -> bool:
        return row.namespace == namespace and (row.attributes or "") == (before or "")

    row = yield from find_run(view, run_id, is_right)
    if row is None:
        return changed(0)
    own = next(text for text in (row.own_attributes, row.attributes, "{}") if text is not None)
    view.runs.put(run_id, replace(row, attributes=attributes, own_attributes=own))
    return changed(1)


# Filters look at the rows of runs here: there is no table of attributes.


@statement
def put_attributes(view: View, rows: Sequence[object]) -> Steps[Found]:
    yield from ()
    return changed(len(rows))


@statement
def put_plain_attributes(view: View, rows: Sequence[object]) -> Steps[Found]:
    return (yield from put_attributes(view, rows))


@statement
def drop_attributes(view: View, rows: Sequence[object]) -> Steps[Found]:
    return (yield from put_attributes(view, rows))


@statement
def renew_attributes(view: View, rows: Sequence[object]) -> Steps[Found]:
    return (yield from put_attributes(view, rows))


@never_waiting
def forget_attributes(view: View, *, to_run_id: str) -> Found:
    return changed(0)


@never_waiting
def copy_attributes(view: View, *, run_id: str, to_run_id: str) -> Found:
    return changed(0)


@statement
def note_undos(view: View, rows: Sequence[NoteUndo]) -> Steps[Found]:
    def note(row: RunRow, note: NoteUndo) -> RunRow:
        return replace(row, undo=note.undo)

    return (yield from update_each(view, rows, _is_owner, note))


@statement
def note_losses(view: View, rows: Sequence[NoteLosses]) -> Steps[Found]:
    def note(row: RunRow, note: NoteLosses) -> RunRow:
        view.deaths.put(row.run_id, None)
        return replace(row, losses=note.losses, outlived=note.outlived)

    return (yield from update_each(view, rows, _is_owner, note))


@statement
def note_cancel(view: View, *, run_id: str, reason: str | None, close_at: int | None, at: int) -> Steps[Found]:
    row = yield from find_run(view, run_id, lambda row: row.closed_at is None)
    if row is None:
        return changed(0)
    is_over = row.close_as == "TIMED_OUT" and row.close_at is not None and row.close_at <= at
    is_undoing = is_over and '"state":"waiting"' in (row.undo or "")
    is_earlier = close_at is not None and (row.close_at is None or close_at < row.close_at or is_undoing)
    view.runs.put(
        row.run_id,
        replace(
            row,
            cancel_requested_at=at if row.cancel_requested_at is None else row.cancel_requested_at,
            cancel_reason=reason if row.cancel_reason is None else row.cancel_reason,
            close_as="CANCELLED" if is_earlier else row.close_as,
            close_at=close_at if is_earlier else row.close_at,
        ),
    )
    return changed(1)


# Letting go


@statement
def park_runs(view: View, rows: Sequence[ParkRun]) -> Steps[Found]:
    def is_right(row: RunRow, park: ParkRun) -> bool:
        return _is_owner(row, park) and (park.messages is None or row.messages == park.messages)

    def park(row: RunRow, park: ParkRun) -> RunRow:
        if park.status == "SUSPENDED":
            view.deaths.put(row.run_id, None)
        return replace(
            row,
            status=park.status,
            owner=None,
            wake_at=at_once_or_later(view, park.wake_at, park.at),
            waiting=park.waiting,
            # One that got as far as to wait is no suspect any more.
            losses=0 if park.status == "SUSPENDED" else row.losses,
            updated_at=park.at,
        )

    return (yield from update_each(view, rows, is_right, park))


@statement
def expect_runs(view: View, rows: Sequence[ExpectRun]) -> Steps[Found]:
    def is_right(row: RunRow, expected: ExpectRun) -> bool:
        return (row.status, row.held, row.step, row.attributes, row.updated_at) == expected[1:]

    return (yield from update_each(view, rows, is_right, lambda row, _: row))


@statement
def expect_owners(view: View, rows: Sequence[ExpectOwner]) -> Steps[Found]:
    def is_right(expected: ExpectOwner, row: RunRow) -> bool:
        last = expected.last_seq
        is_up_to_date = last is None or all(event.seq <= last for event in view.events_of(row.run_id))
        return row.owner == expected.worker_id and row.closed_at is None and is_up_to_date

    found: list[tuple[object, ...]] = []
    for expected in rows:
        row = yield from find_run(view, expected.run_id, partial(is_right, expected))
        found += [] if row is None else [tuple(expected)]
    return rows_of(found)


@statement
def hold_runs(view: View, rows: Sequence[HoldRun]) -> Steps[Found]:
    def hold(row: RunRow, hold: HoldRun) -> RunRow:
        why = {"held": hold.reason, "held_report": hold.report}
        return replace(row, status="SUSPENDED", owner=None, wake_at=None, updated_at=hold.at, **why)

    def is_right(row: RunRow, hold: HoldRun) -> bool:
        return _is_owner(row, hold) and hold.messages in {None, row.messages}

    return (yield from update_each(view, rows, is_right, hold))


def _paused(row: RunRow, report: str, at: int) -> RunRow:
    return replace(row, status="SUSPENDED", wake_at=None, held="paused", held_report=report, updated_at=at)


@statement
def hold_free_runs(view: View, rows: Sequence[tuple[str, str, int]]) -> Steps[Found]:
    def is_right(row: RunRow, _: object) -> bool:
        return row.owner is None and row.closed_at is None

    return (yield from update_each(view, rows, is_right, lambda row, hold: _paused(row, *hold[1:])))


@statement
def hold_tasks(view: View, rows: Sequence[tuple[str, str, int]]) -> Steps[Found]:
    def is_right(row: RunRow) -> bool:
        is_unbegun = row.owner is None and row.begun_at is None and row.closed_at is None
        return row.workflow.startswith(TASK_PREFIX) and is_unbegun and row.held is None

    held = []
    for run_id, report, at in rows:
        for row in (yield from find_runs(view, view.children_of(run_id), is_right)):
            view.runs.put(row.run_id, _paused(row, report, at))
            held.append((row.run_id,))
    return rows_of(held)


@statement
def free_tasks(view: View, *, run_id: str, report: str, now: int) -> Steps[Found]:
    def is_right(row: RunRow) -> bool:
        return (row.held, row.held_report, row.owner, row.closed_at) == ("paused", report, None, None)

    found = yield from find_runs(view, view.children_of(run_id), is_right)
    for row in found:
        freed = replace(row, status="PENDING", wake_at=view.at_once(now), held=None, held_report=None, updated_at=now)
        view.runs.put(row.run_id, freed)
    return rows_of([(row.run_id,) for row in found])


@statement
def touch_run(view: View, *, run_id: str) -> Steps[Found]:
    row = yield from find_run(view, run_id, lambda _: True)
    return rows_of([] if row is None else [(row.owner, row.status, row.closed_at is not None)])


@statement
def resume_run(view: View, *, run_id: str, now: int) -> Steps[Found]:
    def is_right(row: RunRow) -> bool:
        return row.held is not None and row.owner is None and row.closed_at is None

    row = yield from find_run(view, run_id, is_right)
    if row is None:
        return changed(0)
    is_delayed = row.begun_at is None and row.delayed_until is not None and row.delayed_until > now
    wakes = row.delayed_until if is_delayed else view.at_once(now)
    freed = replace(row, held=None, held_report=None, status="PENDING", wake_at=wakes)
    view.runs.put(run_id, replace(freed, losses=0, outlived=0, updated_at=now))
    view.deaths.put(run_id, None)
    return changed(1)


# What a worker that starts lets go on.
TRIED_AGAIN = {"mismatch"}


@never_waiting
def free_mismatches(view: View, *, namespace: str, queues: Sequence[str], workflows: Sequence[str], now: int) -> Found:
    """What another transaction holds stays held."""
    held = [view.runs.get(run_id) for run_id in sorted({**view.tables.runs.held_back, **view.runs.own})]
    mismatched = [row for row in held if row is not None and row.held in TRIED_AGAIN and row.queue in queues]
    wanted = untaken(view, (row for row in mismatched if row.namespace == namespace and row.workflow in workflows))
    for row in wanted:
        freed = replace(row, held=None, held_report=None, status="PENDING", wake_at=view.at_once(now))
        view.runs.put(row.run_id, freed)
    return rows_of((row.run_id,) for row in wanted)


# Ends


@statement
def end_runs(view: View, rows: Sequence[tuple[str, str, str | None, int, int, str, str | None]]) -> Steps[Found]:
    def end(row: RunRow, end: Any) -> RunRow:
        run_id, status, outcome, last_seq, closed_at, _, undo = end
        return replace(
            row,
            status=status,
            outcome=view.payloads.get((run_id, last_seq)) if outcome is None else outcome,
            last_seq=last_seq,
            updated_at=closed_at,
            closed_at=closed_at,
            owner=None,
            wake_at=None,
            waiting=None,
            undo=row.undo if undo is None else undo,
        )

    return (yield from update_each(view, rows, lambda row, end: row.owner == end[5], end))


def is_left_to_a_worker(row: RunRow) -> bool:
    """A run that has something to undo and may go on: no timeout ends it without its code."""
    return row.held not in {"mismatch", "quarantine"} and '"state":"waiting"' in (row.undo or "")


@statement
def close_free_run(
    view: View, *, run_id: str, namespace: str, status: str, outcome: str, at: int, only_unbegun: bool
) -> Steps[Found]:
    def is_right(row: RunRow) -> bool:
        is_free = row.namespace == namespace and row.owner is None and row.closed_at is None
        is_late = status == "TIMED_OUT" and is_left_to_a_worker(row)
        return is_free and not is_late and (not only_unbegun or (row.begun_at is None and row.status == "PENDING"))

    row = yield from find_run(view, run_id, is_right)
    if row is None:
        return changed(0)
    last_seq, last_at = view.last_event(run_id)
    closed_at = max(at, row.created_at, last_at)
    closed = replace(
        row,
        status=status,
        outcome=outcome,
        last_seq=1 + last_seq,
        updated_at=closed_at,
        closed_at=closed_at,
        wake_at=None,
        waiting=None,
        held=None,
    )
    view.runs.put(run_id, closed)
    return rows_of([(1 + last_seq,)])


# Children


def _terminates(row: RunRow, *, all_terminate: bool) -> bool:
    return all_terminate or row.on_parent_close == "terminate"


def children_to_stop(view: View, run_id: str, place: str | None) -> list[RunRow]:
    """A run's open children by their places, those of this transaction as well, but for those that are abandoned."""
    found = view.children_of(run_id)
    places = view.tables.runs.places
    rows = [row for key in found if (row := view.runs.get(key)) is not None and is_to_be_stopped(row, place)]
    return sorted(rows, key=lambda row: (row.parent_place, places[row.run_id], row.run_id))


def is_to_be_stopped(row: RunRow, place: str | None) -> bool:
    is_there = row.parent_place is not None and place in {None, row.parent_place}
    return is_there and row.closed_at is None and row.on_parent_close not in {None, "abandon"}


@statement
def close_unbegun_children(
    view: View,
    *,
    run_id: str,
    place: str | None,
    all_terminate: bool,
    cancel: str,
    terminate: str,
    at: int,
    **_: object,
) -> Steps[Found]:
    def is_right(row: RunRow) -> bool:
        is_unbegun = row.owner is None and row.begun_at is None and (row.status == "PENDING" or row.held == "paused")
        return is_unbegun and is_to_be_stopped(row, place)

    ids = [row.run_id for row in children_to_stop(view, run_id, place)]
    found = yield from find_runs(view, ids, is_right)
    for row in found:
        terminates = _terminates(row, all_terminate=all_terminate)
        closed = replace(
            row,
            held=None,
            status="TERMINATED" if terminates else "CANCELLED",
            outcome=terminate if terminates else cancel,
            last_seq=2,
            updated_at=max(at, row.created_at),
            closed_at=max(at, row.created_at),
            wake_at=None,
        )
        view.runs.put(row.run_id, closed)
    return rows_of((row.run_id,) for row in found)


@statement
def wake_children(view: View, *, run_ids: Sequence[str], at: int, reason: str | None) -> Steps[Found]:
    found = yield from find_runs(view, run_ids, lambda _: True)
    at_once = view.at_once(at)
    for row in found:
        woken = replace(
            row,
            messages=row.messages + 1,
            wake_at=at_once if row.wake_at is None else min(row.wake_at, at_once),
            cancel_requested_at=at if row.cancel_requested_at is None else row.cancel_requested_at,
            cancel_reason=reason if row.cancel_reason is None else row.cancel_reason,
        )
        view.runs.put(row.run_id, woken)
    return changed(len(found))
