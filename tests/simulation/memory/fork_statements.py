"""Statements on forks: a run gets the past of another one."""

import json
from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from perdure.stores.records import CallProgress
from perdure.stores.rules.inbox import SENT
from perdure.stores.rules.questions import Found
from tests.simulation.memory.message_statements import put_message
from tests.simulation.memory.run_statements import append_events
from tests.simulation.memory.statements import changed, find_run, statement
from tests.simulation.memory.tables import InboxRow
from tests.simulation.memory.view import Refused, Steps, View

# The run that it is from, the one it goes to, the first and the last number, and by how much they fall.
KeptRow = tuple[str, str, int, int, int]


@statement
def note_fork(
    view: View,
    *,
    run_id: str,
    from_run_id: str,
    forked_at: int,
    kind: str,
    reason: str | None,
    initial_attributes: str | None,
    begun_at: int | None,
    first_at: int | None,
    cancel_requested_at: int | None,
    cancel_reason: str | None,
    **_: object,
) -> Steps[Found]:
    row = yield from find_run(view, run_id, lambda row: row.forked_from is None)
    if row is None:
        return changed(0)
    past: dict[str, Any] = {
        "forked_from": from_run_id,
        "forked_at": forked_at,
        "fork_kind": kind,
        "fork_reason": reason,
        "initial_attributes": initial_attributes,
        "own_attributes": None if (source := view.runs.get(from_run_id)) is None else source.own_attributes,
        "begun_at": begun_at,
        "first_at": first_at,
        "cancel_requested_at": cancel_requested_at,
        "cancel_reason": cancel_reason,
    }
    view.runs.put(run_id, replace(row, **past))
    return changed(1)


@statement
def note_forked_to(view: View, *, run_id: str, to_run_id: str) -> Steps[Found]:
    row = yield from find_run(view, run_id, lambda row: row.status != "CONTINUED")
    if row is None:
        return changed(0)
    view.runs.put(run_id, replace(row, forked_to=to_run_id))
    return changed(1)


def _is_sent(row: InboxRow) -> bool:
    return row.kind in SENT


@statement
def copy_messages(view: View, *, run_id: str, to_run_id: str) -> Steps[Found]:
    sent = [row for row in view.messages_of(run_id) if _is_sent(row)]
    for row in sent:
        copy = replace(row, run_id=to_run_id, taken_by=None, answer=None)
        if (yield from put_message(view, copy)) is None:
            raise Refused(f"run {to_run_id} has a message {row.message_id} already")
    return changed(len(sent))


@statement
def copy_begun(view: View, *, run_id: str, to_run_id: str) -> Steps[Found]:
    ended = {event.place for event in view.events_of(run_id)}
    of_run = {**view.tables.progress.rows, **view.progress.own}
    begun = [(place, row) for (of, place), row in sorted(of_run.items()) if of == run_id and row is not None]
    lost = [(place, *row) for place, row in begun if row[1].begun_at is not None and place not in ended]
    for place, namespace, known in lost:
        key = (to_run_id, place)
        yield from view.progress.wait(key)
        if view.progress.get(key) is not None:
            raise Refused(f"the call at {place} in run {to_run_id} has begun already")
        view.progress.put(key, (namespace, CallProgress(place, known.begun_at)))
    return changed(len(lost))


@statement
def copy_payloads(view: View, rows: Sequence[KeptRow]) -> Steps[Found]:
    """Here the rows of events hold what is too large for those of others."""
    yield from ()
    return changed(0)


@statement
def copy_events(view: View, rows: Sequence[KeptRow]) -> Steps[Found]:
    copies = [
        event._replace(run_id=to_run_id, seq=event.seq - shift)
        for run_id, to_run_id, first, last, shift in rows
        for event in view.events_of(run_id)
        if first <= event.seq <= last
    ]
    return (yield from append_events(view, copies))


@statement
def keep_known(view: View, *, run_id: str, to_run_id: str) -> Steps[Found]:
    kept, run = 0, view.runs.get(run_id)
    if run is None or run.continued_from is None:
        return changed(0)
    events = {event.seq: event for event in view.events_of(run_id)}
    for row in view.messages_of(run_id):
        number = view.message_ids.get((to_run_id, row.message_id))
        if number is None or not row.taken_by or row.kind not in {"SignalSent", "RequestSent"}:
            continue
        event = events.get(row.taken_by)
        if event is not None and json.loads(event.body).get("message_id") == row.message_id:
            continue
        yield from view.inbox.wait(number)
        copy = view.inbox.get(number)
        assert copy is not None
        view.inbox.put(number, replace(copy, taken_by=row.taken_by, answer=row.answer))
        kept += 1
    return changed(kept)


@statement
def retake_messages(view: View, rows: Sequence[KeptRow]) -> Steps[Found]:
    taken = 0
    for run_id, to_run_id, first, last, shift in rows:
        for row in view.messages_of(run_id):
            number = view.message_ids.get((to_run_id, row.message_id))
            if number is None or row.taken_by is None or not first <= row.taken_by <= last:
                continue
            yield from view.inbox.wait(number)
            copy = view.inbox.get(number)
            assert copy is not None
            view.inbox.put(number, replace(copy, taken_by=row.taken_by - shift, answer=row.answer))
            taken += 1
    return changed(taken)
