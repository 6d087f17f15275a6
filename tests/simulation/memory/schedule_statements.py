"""Statements on schedules, their decisions, and duties."""

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from perdure.stores.operations import MoveSchedule, NoteDecision
from perdure.stores.records import DutyRow, ScheduleRow
from perdure.stores.rules.questions import Found
from tests.simulation.memory.statements import changed, rows_of, statement
from tests.simulation.memory.view import Steps, View


@statement
def insert_schedule(view: View, *, schedule_id: str, namespace: str, name: str, **columns: Any) -> Steps[Found]:
    key = (namespace, name)
    yield from view.schedules.wait(schedule_id)
    yield from view.schedule_names.wait(key)
    if view.schedules.get(schedule_id) is not None or view.schedule_names.get(key) is not None:
        return changed(0)
    view.schedules.put(schedule_id, ScheduleRow(schedule_id, namespace, name, 1, **columns))
    view.schedule_names.put(key, schedule_id)
    return changed(1)


@statement
def move_schedules(view: View, rows: Sequence[MoveSchedule]) -> Steps[Found]:
    moved = []
    for move in rows:
        row = yield from _find(view, move.schedule_id, move.revision)
        if row is not None:
            then = replace(row, revision=row.revision + 1, next_at=move.next_at, waits=move.waits, body=move.body)
            view.schedules.put(row.schedule_id, then)
            moved.append((row.schedule_id,))
    return rows_of(moved)


def _find(view: View, schedule_id: str, revision: int) -> Steps[ScheduleRow | None]:
    row = view.schedules.get(schedule_id)
    if row is None or row.revision != revision:
        return None
    yield from view.schedules.wait(schedule_id)
    row = view.schedules.get(schedule_id)
    return row if row is not None and row.revision == revision else None


@statement
def note_decisions(view: View, rows: Sequence[NoteDecision]) -> Steps[Found]:
    noted = 0
    for row in rows:
        key = (row.schedule_id, row.slot)
        yield from view.decisions.wait(key)
        before = view.decisions.get(key)
        if before is None or before.number <= row.number:
            view.decisions.put(key, row)
            noted += 1
    return changed(noted)


@statement
def delete_schedule(view: View, *, schedule_id: str, revision: int) -> Steps[Found]:
    row = yield from _find(view, schedule_id, revision)
    if row is None:
        return changed(0)
    view.schedules.put(schedule_id, None)
    view.schedule_names.put((row.namespace, row.name), None)
    return changed(1)


@statement
def delete_decisions(view: View, *, schedule_id: str) -> Steps[Found]:
    seen = {**view.tables.decisions.rows, **view.decisions.own}
    keys = sorted(key for key, row in seen.items() if row is not None and key[0] == schedule_id)
    for key in keys:
        yield from view.decisions.wait(key)
        view.decisions.put(key, None)
    return changed(len(keys))


@statement
def take_duty(
    view: View, *, namespace: str, name: str, worker_id: str, now: int, stale_before: int | None
) -> Steps[Found]:
    key = (namespace, name)
    yield from view.duties.wait(key)
    duty = view.duties.get(key)
    if duty is not None:
        is_gone = duty.holder is None or view.workers.get(duty.holder) is None
        is_stale = stale_before is not None and duty.last_ok_at <= stale_before
        if not (is_gone or is_stale or duty.holder == worker_id):
            return changed(0)
    view.duties.put(key, DutyRow(name, worker_id, now, now, None, is_held=False))
    return changed(1)


@statement
def note_duty(
    view: View, *, namespace: str, name: str, worker_id: str, ok_at: int | None, error: str | None
) -> Steps[Found]:
    key = (namespace, name)
    yield from view.duties.wait(key)
    duty = view.duties.get(key)
    if duty is None or duty.holder != worker_id:
        return changed(0)
    view.duties.put(key, duty._replace(last_ok_at=duty.last_ok_at if ok_at is None else ok_at, last_error=error))
    return changed(1)
