"""Statements by name: what each named query of the SQL does to tables in memory.

In:   a view, and the parameters of a query or the rows of a bulk statement.
Out:  what was found, as a database answers it.

Each says what the query of the same name says in the SQL of the stores. A statement sees what was committed when it
began; a row that another transaction holds is waited for and looked at again, or passed by where Postgres skips it.
"""

from collections.abc import Callable, Generator, Iterable, Sequence
from typing import Any, TypeAlias, TypeVar

from perdure.stores.records import RunRow
from perdure.stores.rules.questions import Found
from tests.simulation.memory.view import Steps, View

Statement: TypeAlias = Callable[..., Generator[Any, None, Found]]
S = TypeVar("S", bound=Statement)

STATEMENTS: dict[str, Statement] = {}


def statement(make: S) -> S:
    """A statement that is asked by the name of this function."""
    STATEMENTS[make.__name__] = make
    return make


def never_waiting(do: Callable[..., Found]) -> Callable[..., Found]:
    """The same of a statement that waits for no other transaction."""

    def act(view: View, *rows: object, **parameters: object) -> Steps[Found]:
        yield from ()
        return do(view, *rows, **parameters)

    STATEMENTS[do.__name__] = act
    return do


def rows_of(found: Iterable[Any]) -> Found:
    rows = list(found)
    return Found((), rows, len(rows))


def changed(count: int) -> Found:
    return Found((), (), count)


# What many statements do


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


def untaken(view: View, rows: Iterable[RunRow]) -> list[RunRow]:
    """Those that no other transaction holds, held from now on: `for no key update skip locked`."""
    found = [row for row in rows if not view.runs.is_taken(row.run_id)]
    for row in found:
        view.runs.hold(row.run_id)
    return found


def update_each(
    view: View, rows: Sequence[Any], is_right: Callable[[RunRow, Any], bool], change: Callable[[RunRow, Any], RunRow]
) -> Steps[Found]:
    """Update the runs that these rows name first, if they are as expected; answers which were."""
    seen = [row for row in rows if (run := view.runs.get(row[0])) is not None and is_right(run, row)]
    updated = []
    for row in seen:
        found = yield from find_run(view, row[0], lambda run, row=row: is_right(run, row))  # type: ignore[misc]  # bound at once
        if found is not None:
            view.runs.put(found.run_id, change(found, row))
            updated.append((found.run_id,))
    return rows_of(updated)


def at_once_or_later(view: View, wake_at: int | None, now: int) -> int | None:
    """When a run wakes; a time that has come by the clock of who writes it means at once."""
    return wake_at if wake_at is None or wake_at > now else view.at_once(wake_at)


def owned_by(view: View, worker_id: object) -> list[RunRow]:
    """The open runs this worker owns, by id."""
    own = view.runs.own
    ids = [run_id for run_id in view.tables.runs.owned.get(str(worker_id), ()) if run_id not in own]
    ids += [run_id for run_id, row in own.items() if row and row.owner == worker_id and row.closed_at is None]
    return [row for run_id in sorted(ids) if (row := view.runs.get(run_id)) is not None]
