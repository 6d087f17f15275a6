"""Statements on what runs show and publish: snapshots and streams."""

from collections.abc import Sequence

from msgspec.structs import replace

from perdure.stores.operations import WriteSnapshot
from perdure.stores.records import SnapshotRow, StreamHead, StreamValue
from perdure.stores.rules.questions import Found
from tests.simulation.memory.statements import changed, find_runs, rows_of, statement
from tests.simulation.memory.view import Refused, Steps, View


@statement
def write_snapshots(view: View, rows: Sequence[WriteSnapshot]) -> Steps[Found]:
    written = 0
    for row in rows:
        run = view.runs.get(row.run_id)
        if run is None or run.owner is None or run.owner != row.worker_id:
            continue
        yield from view.snapshots.wait(row.run_id)
        before = view.snapshots.get(row.run_id)
        if before is None or before[1].body != row.body:
            view.snapshots.put(row.run_id, (row.namespace, SnapshotRow(row.seq, row.at, row.body)))
            written += 1
    return changed(written)


@statement
def open_runs(view: View, rows: Sequence[tuple[str]]) -> Steps[Found]:
    ids = sorted({run_id for (run_id,) in rows})
    # One lock here is for one transaction: those that share it wait for each other, which harms nobody.
    found = yield from find_runs(view, ids, lambda run: run.closed_at is None)
    return rows_of((run.run_id,) for run in found)


@statement
def move_heads(view: View, rows: Sequence[tuple[str, str, str, str, int, int, int]]) -> Steps[Found]:
    for run_id, namespace, name, source, n, own, attempt in rows:
        key = (run_id, name, source)
        yield from view.heads.wait(key)
        where, head = view.heads.get(key) or (namespace, StreamHead(name, source, 0, 0, 0))
        moved = replace(head, n=head.n + n, own=head.own + own, attempt=max(head.attempt, attempt))
        view.heads.put(key, (where, moved))
    return changed(len(rows))


@statement
def append_values(view: View, rows: Sequence[tuple[str, str, str, int, int, int, str]]) -> Steps[Found]:
    for run_id, namespace, name, back, attempt, at, body in rows:
        found = view.heads.get((run_id, name, ""))
        assert found is not None, "heads are moved first"
        n = found[1].n - back
        key = (run_id, name, n)
        yield from view.values.wait(key)
        if view.values.get(key) is not None:
            raise Refused(f"run {run_id} has a value {n} in {name} already")
        view.values.put(key, (namespace, StreamValue(n, attempt, at, body)))
    return changed(len(rows))


@statement
def copy_heads(view: View, *, run_id: str, to_run_id: str) -> Steps[Found]:
    keys = {key for key in [*view.tables.heads.rows, *view.heads.own] if key[0] == run_id and key[2] == ""}
    copied = 0
    for key in sorted(keys):
        found, successor = view.heads.get(key), (to_run_id, *key[1:])
        yield from view.heads.wait(successor)
        if found is not None and view.heads.get(successor) is None:
            view.heads.put(successor, (found[0], replace(found[1], own=0, attempt=0)))
            copied += 1
    return changed(copied)
