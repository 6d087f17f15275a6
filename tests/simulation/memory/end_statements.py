"""Statements that end runs: by their owner, by whoever asks, and with their parent."""

from collections.abc import Sequence

from msgspec.structs import replace

from perdure.stores.answers import Applied, Asked, Moved
from perdure.stores.operations import CloseFreeRun, EndRun, StopChildren
from perdure.stores.records import RunRow
from tests.simulation.memory.run_statements import find_run, find_runs
from tests.simulation.memory.tables import InboxRow
from tests.simulation.memory.view import Progress, Refused, Steps, View

_CLOSE_CHILDREN = Progress("close_unbegun_children")
_STOP_CHILDREN = Progress("stop_children")


def end_runs(view: View, ends: Sequence[EndRun]) -> Steps[None]:
    for end in sorted(ends):
        row = yield from _find_owned(view, end)
        if row is None:
            raise Refused("a run to be closed is not owned by the worker that closes it")
        ended = replace(
            row,
            status=end.status,
            outcome=end.outcome,
            last_seq=end.last_seq,
            updated_at=end.closed_at,
            closed_at=end.closed_at,
            owner=None,
            wake_at=None,
            waiting=None,
        )
        view.runs.put(row.run_id, ended)


def _find_owned(view: View, end: EndRun) -> Steps[RunRow | None]:
    return (yield from find_run(view, end.run_id, lambda row: row.owner == end.owner))


def close_free_run(view: View, close: CloseFreeRun) -> Steps[Moved | None]:
    def is_right(row: RunRow) -> bool:
        is_free = row.namespace == close.namespace and row.owner is None and row.closed_at is None
        return is_free and (not close.only_unbegun or (row.begun_at is None and row.status == "PENDING"))

    row = yield from find_run(view, close.run_id, is_right)
    if row is None:
        return Moved()
    last_seq, last_at = view.last_event(row.run_id)
    closed_at = max(close.at, row.created_at, last_at)
    closed = replace(
        row,
        status=close.status,
        outcome=close.outcome,
        last_seq=1 + last_seq,
        updated_at=closed_at,
        closed_at=closed_at,
        wake_at=None,
        waiting=None,
        held=None,
    )
    view.runs.put(row.run_id, closed)
    return None


# Children


def stop_children(view: View, stop: StopChildren) -> Steps[Applied | None]:
    yield from _close_unbegun(view, stop)
    yield _CLOSE_CHILDREN
    asked = yield from _ask(view, stop)
    if not asked:
        return None
    yield _STOP_CHILDREN
    for child in asked:
        _wake(view, child.run_id, stop)
    return Applied(asked)


def _close_unbegun(view: View, stop: StopChildren) -> Steps[None]:
    """Those whose code was never called have nothing to clean up."""

    def is_right(row: RunRow) -> bool:
        is_unbegun = row.owner is None and row.begun_at is None and row.status == "PENDING"
        return is_unbegun and _is_concerned(row, stop)

    for row in (yield from find_runs(view, _children(view, stop), is_right)):
        terminates = _terminates(row, stop)
        closed = replace(
            row,
            status="TERMINATED" if terminates else "CANCELLED",
            outcome=stop.terminate if terminates else stop.cancel,
            last_seq=2,
            updated_at=max(stop.at, row.created_at),
            closed_at=max(stop.at, row.created_at),
            wake_at=None,
        )
        view.runs.put(row.run_id, closed)


def _ask(view: View, stop: StopChildren) -> Steps[list[Asked]]:
    """Put a message into the inbox of each; those that were asked to cancel before are not asked again."""

    def is_right(row: RunRow) -> bool:
        return _is_concerned(row, stop) and (_terminates(row, stop) or row.cancel_requested_at is None)

    asked = []
    for row in (yield from find_runs(view, _children(view, stop), is_right)):
        number = view.take_number()
        key = (row.run_id, stop.message_id)
        yield from view.message_ids.wait(key)
        if view.message_ids.get(key) is None:
            terminates = _terminates(row, stop)
            kind = "TerminateRequest" if terminates else "CancelRequest"
            body = stop.terminate if terminates else stop.cancel
            message = InboxRow(number, row.namespace, row.run_id, stop.message_id, kind, body, stop.at)
            view.message_ids.put(key, number)
            view.inbox.put(number, message)
            asked.append(Asked(row.run_id, number, kind))
    return asked


def _wake(view: View, run_id: str, stop: StopChildren) -> None:
    row = view.runs.get(run_id)
    assert row is not None
    at_once = view.at_once(stop.at)
    woken = replace(
        row,
        messages=row.messages + 1,
        wake_at=at_once if row.wake_at is None else min(row.wake_at, at_once),
        cancel_requested_at=stop.at if row.cancel_requested_at is None else row.cancel_requested_at,
        cancel_reason=stop.reason if row.cancel_reason is None else row.cancel_reason,
    )
    view.runs.put(run_id, woken)


def _children(view: View, stop: StopChildren) -> list[str]:
    """A run's children by their places, those of this transaction as well."""
    found = dict(view.tables.runs.children.get(stop.run_id, {}))
    found |= {run_id: None for run_id, row in view.runs.own.items() if row is not None and row.parent_id == stop.run_id}
    places = view.tables.runs.places
    rows = [row for run_id in found if (row := view.runs.get(run_id)) is not None and row.parent_place is not None]
    return [row.run_id for row in sorted(rows, key=lambda row: (row.parent_place, places[row.run_id]))]


def _is_concerned(row: RunRow, stop: StopChildren) -> bool:
    is_there = row.parent_place is not None and stop.place in {None, row.parent_place}
    return is_there and row.closed_at is None and row.on_parent_close not in {None, "abandon"}


def _terminates(row: RunRow, stop: StopChildren) -> bool:
    return stop.all_terminate or row.on_parent_close == "terminate"
