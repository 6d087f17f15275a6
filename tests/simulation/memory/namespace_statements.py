"""Statements on namespaces."""

from perdure.stores.rules.questions import Found
from tests.simulation.memory.statements import changed, never_waiting, rows_of, statement
from tests.simulation.memory.view import Steps, View


@statement
def insert_namespace(view: View, *, namespace: str, at: int) -> Steps[Found]:
    yield from view.namespaces.wait(namespace)
    if view.namespaces.get(namespace) is not None:
        return changed(0)
    view.namespaces.put(namespace, at)
    return changed(1)


@statement
def ensure_namespace(view: View, *, namespace: str, at: int) -> Steps[Found]:
    """It is kept from being deleted until the transaction ends."""
    yield from view.namespaces.wait(namespace)
    known = view.namespaces.get(namespace)
    view.namespaces.put(namespace, at if known is None else known)
    return changed(1)


@statement
def reach_namespace(view: View, *, namespace: str) -> Steps[Found]:
    yield from view.namespaces.wait(namespace)
    if view.namespaces.get(namespace) is None:
        return rows_of([])
    view.namespaces.hold(namespace)
    return rows_of([(1,)])


@never_waiting
def left_in_namespace(view: View, *, namespace: str, most: int) -> Found:
    runs = {**view.tables.runs.rows, **view.runs.own}.values()
    workers = {**view.tables.workers.rows, **view.workers.own}.values()
    schedules = {**view.tables.schedules.rows, **view.schedules.own}.values()
    sinks = {**view.tables.sinks.rows, **view.sinks.own}.values()
    every = (runs, workers, schedules, sinks)
    left = [sum(row is not None and row.namespace == namespace for row in rows) for rows in every]
    return rows_of([(min(left[0], most), *left[1:])])


@never_waiting
def delete_namespace(view: View, *, namespace: str) -> Found:
    view.namespaces.put(namespace, None)
    return changed(1)
