"""Statements on sinks, the events that wait for them, and those that they did not take."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

from perdure.kernel.outbox import ENDED, STARTED, STEPS
from perdure.kernel.status import Status
from perdure.stores.operations import EndGap
from perdure.stores.records import RunRow, SinkRow
from perdure.stores.rules.questions import Found
from tests.simulation.memory.statements import changed, never_waiting, rows_of, statement
from tests.simulation.memory.tables import Letter, WaitingEvent
from tests.simulation.memory.view import Steps, View


def sinks_in(view: View) -> list[SinkRow]:
    found = (view.sinks.get(key) for key in sorted({**view.tables.sinks.rows, **view.sinks.own}))
    return [row for row in found if row is not None]


def waiting_in(view: View, sink_id: str) -> list[WaitingEvent]:
    """What a transaction sees of the events that wait for a sink, in their order."""
    found = (view.outbox.get(n) for n in sorted({**view.tables.outbox.rows, **view.outbox.own}))
    return [row for row in found if row is not None and row.sink_id == sink_id]


def letters_in(view: View, sink_id: str) -> list[Letter]:
    found = (view.letters.get(n) for n in sorted({**view.tables.letters.rows, **view.letters.own}))
    return [row for row in found if row is not None and row.event.sink_id == sink_id]


def _put(view: View, **columns: Any) -> None:
    n = view.take_event_number()
    blank = dict.fromkeys(("workflow_id", "workflow", "step", "held", "attributes"))
    view.outbox.put(n, WaitingEvent(**{"n": n, "attempts": 0, "next_at": 0, **blank, **columns}))


# Sinks


@statement
def insert_sink(view: View, *, sink_id: str, namespace: str, name: str, **columns: Any) -> Steps[Found]:
    key = (namespace, name)
    yield from view.sinks.wait(sink_id)
    yield from view.sink_names.wait(key)
    if view.sinks.get(sink_id) is not None or view.sink_names.get(key) is not None:
        return changed(0)
    view.sinks.put(sink_id, SinkRow(sink_id, namespace, name, 1, behind_at=None, delivered=0, **columns))
    view.sink_names.put(key, sink_id)
    return changed(1)


def _change_sink(view: View, sink_id: str, change: Callable[[SinkRow], SinkRow | None]) -> Steps[Found]:
    if view.sinks.get(sink_id) is None:
        return changed(0)
    yield from view.sinks.wait(sink_id)
    row = view.sinks.get(sink_id)
    then = None if row is None else change(row)
    if then is None:
        return changed(0)
    view.sinks.put(sink_id, then)
    return changed(1)


@statement
def move_sink(view: View, *, sink_id: str, revision: int, **columns: Any) -> Steps[Found]:
    return (
        yield from _change_sink(
            view,
            sink_id,
            lambda row: row._replace(revision=revision + 1, **columns) if row.revision == revision else None,
        )
    )


@statement
def delete_sink(view: View, *, sink_id: str) -> Steps[Found]:
    yield from view.sinks.wait(sink_id)
    row = view.sinks.get(sink_id)
    if row is None:
        return changed(0)
    view.sinks.put(sink_id, None)
    view.sink_names.put((row.namespace, row.name), None)
    return changed(1)


@statement
def reach_wishes(view: View) -> Steps[Found]:
    found = [name for name in ("outbox", "outbox.steps") if view.listeners.get(name) is not None]
    for name in found:
        yield from view.listeners.wait(name)
        view.listeners.hold(name)
    return changed(len(found))


@statement
def forget_wishes(view: View, *, steps: int) -> Steps[Found]:
    wishes = {"outbox": ~0, "outbox.steps": steps}
    gone = [name for name, bits in wishes.items() if not any(row.types & bits or bits == ~0 for row in sinks_in(view))]
    gone = [name for name in gone if view.listeners.get(name) is not None]
    for name in gone:
        yield from view.listeners.wait(name)
        view.listeners.put(name, None)
    return changed(len(gone))


@never_waiting
def sink_of_id(view: View, *, sink_id: str) -> Found:
    row = view.sinks.get(sink_id)
    return Found(SinkRow._fields, [] if row is None else [row], 0 if row is None else 1)


@statement
def mark_behind(view: View, *, now: int, count: int) -> Steps[Found]:
    known = {**view.tables.outbox.rows, **view.outbox.own}
    newest = max((n for n, event in known.items() if event is not None), default=0)
    marked = 0
    for row in sinks_in(view):
        part = max(row.max_backlog // 20, 1)
        is_counted = row.behind_at is None and newest // part != (newest - count) // part
        if is_counted and len(waiting_in(view, row.sink_id)) > row.max_backlog - part:
            marked += (
                yield from _change_sink(
                    view, row.sink_id, lambda row: row._replace(behind_at=now) if row.behind_at is None else None
                )
            ).count
    return changed(marked)


@statement
def count_delivered(view: View, *, sink_id: str, count: int) -> Steps[Found]:
    return (yield from _change_sink(view, sink_id, lambda row: row._replace(delivered=row.delivered + count)))


@statement
def end_gap(view: View, *, sink_id: str) -> Steps[Found]:
    return (
        yield from _change_sink(
            view, sink_id, lambda row: None if row.behind_at is None else row._replace(behind_at=None)
        )
    )


# Events


def _wants(row: SinkRow, namespace: str, workflow: str | None, bit: int) -> bool:
    is_known = row.workflows is None or workflow in msgspec.json.decode(row.workflows)
    return row.namespace == namespace and bool(row.types & bit) and row.behind_at is None and is_known


@never_waiting
def queue_events(view: View, rows: Sequence[tuple[Any, ...]]) -> Found:
    count = 0
    # The number comes in the order of the rows; all of them see the sinks as they are now.
    sinks = sinks_in(view)
    for run_id, bit, type, number, at, step, status in rows:
        run = view.runs.get(run_id)
        if run is None or (status is not None and run.status != status) or run.workflow.startswith("task:"):
            continue
        if type == STARTED and run.created_at != at:
            continue
        for row in sinks:
            if _wants(row, run.namespace, run.workflow, bit):
                _put(view, sink_id=row.sink_id, **_told(view, run, type, number, at, step))
                count += 1
    return changed(count)


def _told(
    view: View, run: RunRow, type: str, number: int | None, at: int | None, step: str | None
) -> dict[str, object]:
    last = max((event.seq for event in view.events_of(run.run_id)), default=None)
    return {
        "run_id": run.run_id,
        "workflow_id": run.workflow_id,
        "workflow": run.workflow,
        "type": type,
        "number": next(each for each in (number, run.last_seq, last, 1) if each is not None),
        "at": run.closed_at if at is None else at,
        "step": run.step if step is None else step,
        "held": run.held if type == "run.held" else None,
        "attributes": run.attributes,
    }


@never_waiting
def queue_decisions(view: View, rows: Sequence[tuple[Any, ...]]) -> Found:
    count = 0
    for schedule_id, bit, type, number, at, body in rows:
        schedule = view.schedules.get(schedule_id)
        if schedule is None:
            continue
        workflow = msgspec.json.decode(schedule.body)["call"]["workflow"]
        for row in sinks_in(view):
            if _wants(row, schedule.namespace, workflow, bit):
                of_schedule = {"run_id": schedule_id, "workflow_id": schedule.name, "workflow": workflow}
                _put(view, sink_id=row.sink_id, type=type, number=number, at=at, attributes=body, **of_schedule)
                count += 1
    return changed(count)


@never_waiting
def queue_event(view: View, **columns: Any) -> Found:
    gap = EndGap(**columns)
    _put(view, sink_id=gap.sink_id, run_id="", type=gap.type, number=0, at=gap.at, attributes=gap.body)
    return changed(1)


@statement
def reach_duty(view: View, *, namespace: str, name: str, worker_id: str) -> Steps[Found]:
    key = (namespace, name)
    yield from view.duties.wait(key)
    duty = view.duties.get(key)
    if duty is None or duty.holder != worker_id:
        return changed(0)
    view.duties.hold(key)
    return changed(1)


def _change_events(
    view: View, sink_id: str | None, numbers: Iterable[int], change: Callable[[WaitingEvent], WaitingEvent | None]
) -> Steps[Found]:
    count = 0
    for n in sorted(numbers):
        yield from view.outbox.wait(n)
        row = view.outbox.get(n)
        if row is not None and sink_id in (None, row.sink_id):
            view.outbox.put(n, change(row))
            count += 1
    return changed(count)


@statement
def delete_delivered(view: View, *, numbers: Sequence[int], sink_id: str | None = None) -> Steps[Found]:
    return (yield from _change_events(view, None, numbers, lambda _: None))


@statement
def retry_event(view: View, *, sink_id: str, n: int, **columns: Any) -> Steps[Found]:
    return (yield from _change_events(view, sink_id, [n], lambda row: row._replace(**columns)))


@statement
def set_behind(view: View, *, numbers: Sequence[int], sink_id: str | None = None) -> Steps[Found]:
    return (yield from _change_events(view, None, numbers, lambda row: row._replace(next_at=None)))


@statement
def free_next(view: View, *, sink_id: str, runs: Sequence[str]) -> Steps[Found]:
    first: dict[str, WaitingEvent] = {}
    for row in waiting_in(view, sink_id):
        first.setdefault(row.run_id, row)
    due = [first[run_id].n for run_id in runs if run_id in first and first[run_id].next_at is None]
    return (yield from _change_events(view, sink_id, due, lambda row: row._replace(next_at=0)))


@statement
def purge_outbox(view: View, *, sink_id: str, limit: int) -> Steps[Found]:
    found = sorted(waiting_in(view, sink_id), key=lambda row: (row.run_id, row.n))[:limit]
    return (yield from _change_events(view, sink_id, [row.n for row in found], lambda _: None))


# Dead letters


@never_waiting
def bury_event(view: View, *, sink_id: str, n: int, attempts: int, error: str, at: int, next_at: None = None) -> Found:
    row = view.outbox.get(n)
    if row is None or row.sink_id != sink_id:
        return changed(0)
    view.letters.put(n, Letter(row._replace(attempts=attempts, error=error, next_at=next_at), at))
    return changed(1)


@never_waiting
def dead_letters(view: View, *, sink_id: str, after: int, limit: int) -> Found:
    return rows_of((row.event.n,) for row in letters_in(view, sink_id)[:limit] if row.event.n > after)


@never_waiting
def revive_letters(view: View, *, sink_id: str, numbers: Sequence[int]) -> Found:
    found = [row.event for row in letters_in(view, sink_id) if row.event.n in numbers]
    for event in found:
        n = view.take_event_number()
        view.outbox.put(n, event._replace(n=n, attempts=0, next_at=0, error=None))
    return changed(len(found))


@statement
def delete_letters(view: View, *, sink_id: str, numbers: Sequence[int]) -> Steps[Found]:
    found = [row.event.n for row in letters_in(view, sink_id) if row.event.n in numbers]
    for n in found:
        yield from view.letters.wait(n)
        view.letters.put(n, None)
    return changed(len(found))


@statement
def purge_letters(view: View, *, sink_id: str, limit: int) -> Steps[Found]:
    numbers = [row.event.n for row in letters_in(view, sink_id)][:limit]
    return (yield from delete_letters(view, sink_id=sink_id, numbers=numbers))


# What is made anew


@never_waiting
def runs_to_resend(view: View, *, namespace: str, after: str, since: int, until: int, limit: int, **_: Any) -> Found:
    runs = (view.runs.get(run_id) for run_id in sorted({**view.tables.runs.rows, **view.runs.own}))
    found = [
        (run.run_id,)
        for run in runs
        if run is not None
        and (run.namespace, run.run_id > after, run.created_at <= until) == (namespace, True, True)
        and (run.closed_at is None or run.closed_at >= since)
        and not run.workflow.startswith("task:")
    ]
    return rows_of(found[:limit])


@never_waiting
def resend_events(
    view: View,
    *,
    sink_id: str,
    runs: Sequence[str],
    since: int,
    until: int,
    types: Sequence[str],
    all_workflows: bool,
    workflows: Sequence[str],
) -> Found:
    count = 0
    for run_id in sorted(runs):
        run = view.runs.get(run_id)
        if run is None or not (all_workflows or run.workflow in workflows):
            continue
        for type, number, at, step, attributes in _history(view, run):
            if type in types and since <= at <= until:
                of_run = {"run_id": run_id, "workflow_id": run.workflow_id, "workflow": run.workflow}
                told = {"type": type, "number": number, "at": at, "step": step, "attributes": attributes}
                _put(view, sink_id=sink_id, **of_run, **told)
                count += 1
    return changed(count)


def _history(view: View, run: RunRow) -> list[tuple[str, int, int, str | None, str | None]]:
    told: list[tuple[str, int, int, str | None, str | None]] = [
        (STARTED, 1, run.created_at, None, run.initial_attributes)
    ]
    told += [
        (STEPS[event.kind], event.seq, event.at, event.place, run.attributes)
        for event in view.events_of(run.run_id)
        if event.kind in STEPS and event.seq > (run.forked_at or 0)
    ]
    if run.closed_at is not None and run.last_seq is not None:
        told.append((ENDED[Status(run.status)], run.last_seq, run.closed_at, run.step, run.attributes))
    return told
