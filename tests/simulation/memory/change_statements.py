"""Statements on those who listen, and on the log of changes that is written for them."""

from collections.abc import Sequence

from perdure.stores.records import ListenerRow
from perdure.stores.rules.questions import Found
from tests.simulation.memory.statements import changed, never_waiting, rows_of, statement
from tests.simulation.memory.view import Steps, View


@never_waiting
def listeners(view: View) -> Found:
    own, committed = view.listeners.own, view.tables.listeners.rows
    found = {name: view.listeners.get(name) for name in [*committed, *own]}
    return rows_of((name, row.until) for name, row in found.items() if row is not None)


@statement
def listen(view: View, *, name: str, until: int, now: int) -> Steps[Found]:
    yield from view.listeners.wait(name)
    row = view.listeners.get(name)
    if row is None:
        row = ListenerRow(until, "", "", 0)
    else:
        row = row._replace(until=max(row.until, until), since="" if row.until <= now else row.since)
    view.listeners.put(name, row)
    return changed(1)


@statement
def move_log(view: View, *, name: str, was: str, since: str, later: str, later_at: int) -> Steps[Found]:
    row = view.listeners.get(name)
    if row is None or row.since != was:
        return changed(0)
    yield from view.listeners.wait(name)
    row = view.listeners.get(name)
    if row is None or row.since != was:
        return changed(0)
    view.listeners.put(name, row._replace(since=since, later=later, later_at=later_at))
    return changed(1)


@statement
def log_changes(view: View, rows: Sequence[tuple[str]]) -> Steps[Found]:
    yield from ()
    for (run_id,) in rows:
        view.changes.put((view.transaction_id(), run_id), True)
    return changed(len(rows))


@never_waiting
def forget_changes(view: View, *, before: int, but: Sequence[int], limit: int) -> Found:
    known = {**view.tables.changes.rows, **view.changes.own}
    found = sorted(key for key in known if key[0] < before and key[0] not in but)
    free = [key for key in found if view.changes.get(key) and not view.changes.is_taken(key)][:limit]
    for key in free:
        view.changes.put(key, None)
    return changed(len(free))
