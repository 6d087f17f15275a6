"""Statements on announced workflows."""

from perdure.stores.rules.questions import Found
from tests.simulation.memory.statements import changed, never_waiting, rows_of, statement
from tests.simulation.memory.view import Steps, View


@statement
def announce_workflow(view: View, *, namespace: str, name: str, body: str, digest: str, at: int) -> Steps[Found]:
    yield from view.announced.wait((namespace, name))
    view.announced.put((namespace, name), (body, digest))
    return changed(1)


@never_waiting
def announced_digests(view: View, *, namespace: str) -> Found:
    return rows_of([(name, row[1]) for (home, name), row in _rows(view).items() if home == namespace])


@never_waiting
def announced(view: View, *, namespace: str, name: str) -> Found:
    found = view.announced.get((namespace, name))
    return rows_of([] if found is None else [(found[0],)])


@statement
def delete_announced(view: View, *, namespace: str) -> Steps[Found]:
    own = sorted(key for key in _rows(view) if key[0] == namespace)
    for key in own:
        yield from view.announced.wait(key)
        view.announced.put(key, None)
    return changed(len(own))


def _rows(view: View) -> dict[tuple[str, str], tuple[str, str]]:
    seen = {**view.tables.announced.rows, **view.announced.own}
    return {key: row for key, row in seen.items() if row is not None}
