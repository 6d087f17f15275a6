"""Statements on inboxes: messages are put, taken, and handed over to a successor."""

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from perdure.stores.operations import AnswerRequest, TakeMessage
from perdure.stores.records import RunRow
from perdure.stores.rules.inbox import SENT
from perdure.stores.rules.questions import Found
from tests.simulation.memory.run_statements import children_to_stop, is_to_be_stopped
from tests.simulation.memory.statements import changed, find_run, find_runs, never_waiting, rows_of, statement
from tests.simulation.memory.tables import InboxRow
from tests.simulation.memory.view import Refused, Steps, View

_MOVED_KINDS = (*SENT, "CancelRequest", "TerminateRequest", "PauseRequest", "ResumeRequest")
_MOST_SIGNALS = 1000
_MOST_REQUESTS = 10_000


@statement
def post_messages(view: View, rows: Sequence[Any]) -> Steps[Found]:
    """The runs are held before any number is given, in the order of their ids."""
    run_ids = sorted({row[0] for row in rows})
    found = yield from find_runs(view, run_ids, lambda run: run.closed_at is None)
    runs = {run.run_id: run for run in found}
    unread = {run.run_id: run.messages - (view.messages_read.get(run.run_id) or 0) for run in found}
    posted = []
    for run_id, message_id, kind, body, at, _, room in rows:
        if run_id not in runs or (room is not None and unread[run_id] >= room):
            continue
        message = InboxRow(0, runs[run_id].namespace, run_id, message_id, kind, body, at)
        number = yield from put_message(view, message)
        if number is not None:
            posted.append((number, run_id, message_id, kind, at))
    return rows_of(posted)


def put_message(view: View, message: InboxRow) -> Steps[int | None]:
    """The number of a message that was put into its inbox; also one that turns out to be there has taken a number."""
    number = view.take_number()
    key = (message.run_id, message.message_id)
    if view.message_ids.is_taken(key):
        yield from view.message_ids.wait(key)
    if view.message_ids.get(key) is not None:
        return None
    view.message_ids.put(key, number)
    view.inbox.put(number, replace(message, number=number))
    return number


@statement
def count_posted(view: View, rows: Sequence[tuple[str, int, bool, int]]) -> Steps[Found]:
    told = []
    for run_id, count, are_signals, at in rows:
        row = yield from find_run(view, run_id, lambda _: True)
        if row is not None:
            stays = row.held is not None or (are_signals and _is_delayed(view, row, at))
            wakes = row.wake_at if stays else _woken(view, row, at)
            view.runs.put(run_id, replace(row, messages=row.messages + count, wake_at=wakes))
            told.append((run_id, row.messages + count))
    return rows_of(told)


@statement
def count_delayed(view: View, *, run_id: str, count: int, due_at: int) -> Steps[Found]:
    row = yield from find_run(view, run_id, lambda _: True)
    if row is None:
        return rows_of([])
    begins_later = row.begun_at is None and row.delayed_until is not None and row.wake_at is not None
    stays = row.held is not None or begins_later
    wakes = row.wake_at if stays else due_at if row.wake_at is None else min(row.wake_at, due_at)
    view.runs.put(run_id, replace(row, messages=row.messages + count, wake_at=wakes))
    return rows_of([(row.messages + count,)])


@never_waiting
def unread_pause(view: View, *, run_id: str) -> Found:
    found = [row for row in view.messages_of(run_id) if row.taken_by is None and row.kind == "PauseRequest"]
    return rows_of([(1,)] if found else [])


def _woken(view: View, row: RunRow, at: int) -> int:
    at_once = view.at_once(at)
    return at_once if row.wake_at is None else min(row.wake_at, at_once)


def _is_delayed(view: View, row: RunRow, at: int) -> bool:
    """Whether the delay of a run is not over; with turns it has its time still, whatever the sender's clock says."""
    if row.begun_at is not None or row.delayed_until is None:
        return False
    return row.wake_at is not None if view.tables.has_turns else row.delayed_until > at


@never_waiting
def find_message(view: View, *, run_id: str, message_id: str) -> Found:
    number = view.message_ids.get((run_id, message_id))
    row = None if number is None else view.inbox.get(number)
    return rows_of([] if row is None else [(row.number, row.kind, row.body)])


@never_waiting
def run_status(view: View, *, run_id: str) -> Found:
    row = view.runs.get(run_id)
    return rows_of([] if row is None else [(row.status, row.closed_at is not None)])


@never_waiting
def count_unread(view: View, *, run_id: str, most: int) -> Found:
    return rows_of([(min(most, sum(row.taken_by is None for row in view.messages_of(run_id))),)])


@statement
def note_unread(view: View, *, run_id: str, unread: int) -> Steps[Found]:
    row = yield from find_run(view, run_id, lambda _: True)
    if row is not None:
        view.messages_read.put(run_id, row.messages - unread)
    return changed(row is not None)


@statement
def take_messages(view: View, rows: Sequence[TakeMessage]) -> Steps[Found]:
    for number, taken_by in rows:
        if view.inbox.get(number) is None:
            continue
        if view.inbox.is_taken(number):
            yield from view.inbox.wait(number)
        row = view.inbox.get(number)
        assert row is not None
        view.inbox.put(number, replace(row, taken_by=taken_by))
    return changed(len(rows))


@statement
def answer_requests(view: View, rows: Sequence[AnswerRequest]) -> Steps[Found]:
    """The first answer stays."""
    for run_id, message_id, answer in rows:
        number = view.message_ids.get((run_id, message_id))
        if number is None:
            continue
        if view.inbox.is_taken(number):
            yield from view.inbox.wait(number)
        row = view.inbox.get(number)
        if row is not None and row.run_id == run_id and row.answer is None:
            view.inbox.put(number, replace(row, answer=answer))
    return changed(len(rows))


@statement
def stop_children(
    view: View,
    *,
    run_id: str,
    message_id: str,
    place: str | None,
    all_terminate: bool,
    cancel: str,
    terminate: str,
    at: int,
    **_: object,
) -> Steps[Found]:
    """Put a message into the inbox of each; those that were asked to cancel before are not asked again."""

    def terminates(row: RunRow) -> bool:
        return all_terminate or row.on_parent_close == "terminate"

    def is_right(row: RunRow) -> bool:
        return is_to_be_stopped(row, place) and (terminates(row) or row.cancel_requested_at is None)

    ids = [row.run_id for row in children_to_stop(view, run_id, place)]
    asked = []
    for row in (yield from find_runs(view, ids, is_right)):
        kind, body = ("TerminateRequest", terminate) if terminates(row) else ("CancelRequest", cancel)
        number = yield from put_message(view, InboxRow(0, row.namespace, row.run_id, message_id, kind, body, at))
        if number is not None:
            asked.append((row.run_id, number, kind))
    return rows_of(asked)


# Successors


@statement
def move_messages(view: View, *, run_id: str, to_run_id: str) -> Steps[Found]:
    unread = [row for row in view.messages_of(run_id) if row.taken_by is None and row.kind in _MOVED_KINDS]
    return (yield from _move(view, unread, run_id, to_run_id))


@statement
def move_known(view: View, *, run_id: str, to_run_id: str) -> Steps[Found]:
    """The last signals and requests that were sent under an id; a request that has no answer never gets one."""
    taken = [row for row in view.messages_of(run_id) if row.taken_by is not None]
    signals = [row for row in taken if row.message_id.startswith("signal:")][-_MOST_SIGNALS:]
    requests = [row for row in taken if row.message_id.startswith("request:")][-_MOST_REQUESTS:]
    known = sorted(signals + requests, key=lambda row: row.number)
    return (yield from _move(view, known, run_id, to_run_id))


def _move(view: View, rows: list[InboxRow], run_id: str, to_run_id: str) -> Steps[Found]:
    moved = 0
    for expected in rows:
        yield from view.inbox.wait(expected.number)
        row = view.inbox.get(expected.number)
        assert row is not None
        if row.run_id != run_id or (row.taken_by is None) != (expected.taken_by is None):
            continue
        moved += 1
        if to_run_id != run_id:
            key = (to_run_id, row.message_id)
            yield from view.message_ids.wait(key)
            if view.message_ids.get(key) is not None:
                raise Refused(f"run {to_run_id} has a message {row.message_id} already")
            view.message_ids.put((row.run_id, row.message_id), None)
            view.message_ids.put(key, row.number)
            view.inbox.put(row.number, replace(row, run_id=to_run_id, answer=_left(row)))
    return changed(moved)


def _left(row: InboxRow) -> str | None:
    """The answer of a request that goes on with a run: one that was taken and has none gets none any more."""
    is_left = row.kind == "RequestSent" and row.taken_by is not None and row.message_id.startswith("request:")
    return row.answer or ('{"type":"left"}' if is_left else None)


@statement
def count_messages(view: View, *, to_run_id: str) -> Steps[Found]:
    row = yield from find_run(view, to_run_id, lambda _: True)
    if row is not None:
        view.runs.put(to_run_id, replace(row, messages=row.messages + len(view.messages_of(to_run_id))))
    return changed(row is not None)


@statement
def carry_outside(view: View, *, run_id: str, to_run_id: str) -> Steps[Found]:
    def asked() -> RunRow | None:
        row = view.runs.get(run_id)
        has_none = row is None or (row.cancel_requested_at is None and row.own_attributes is None)
        return None if has_none else row

    if asked() is None:
        return changed(0)
    row = yield from find_run(view, to_run_id, lambda _: True)
    before = asked()
    if row is None or before is None:
        return changed(0)
    is_cancelled = before.close_as == "CANCELLED"
    if before.own_attributes is not None:
        row = replace(row, attributes=before.attributes, own_attributes=row.attributes or "{}")
    carried = replace(
        row,
        cancel_requested_at=before.cancel_requested_at,
        cancel_reason=before.cancel_reason,
        close_as="CANCELLED" if is_cancelled else row.close_as,
        close_at=before.close_at if is_cancelled else row.close_at,
    )
    view.runs.put(row.run_id, carried)
    return changed(1)
