"""Attributes: how what runs say of themselves is written, so that they are found by it.

In:   new runs, what workflows say later, and what is set from outside.
Out:  questions to the database: a row for each attribute, in the transaction that changes the run's own.
"""

from collections.abc import Sequence
from operator import attrgetter

import msgspec

from perdure.kernel.attributes import merged
from perdure.stores.answers import Answer, Answers, Moved, answer_group
from perdure.stores.operations import Annotate, InsertRichRun, SetAttributes
from perdure.stores.rules.filters import are_plain, attribute_rows
from perdure.stores.rules.questions import ManyRows, Query, Steps


def put_attributes(runs: Sequence[InsertRichRun], *, are_new: bool) -> Steps[None]:
    """Let runs be found by the attributes they are started with; some may have theirs unless all are new."""
    plain: list[tuple[object, ...]] = []
    rows: list[tuple[object, ...]] = []
    for run in runs:
        if are_new and are_plain(run.attributes):
            plain.append((run.run_id, run.namespace, run.attributes))
        else:
            rows += attribute_rows(run.run_id, run.namespace, run.attributes)
    if plain:
        yield ManyRows("put_plain_attributes", plain)
    if rows:
        yield ManyRows("put_attributes", rows)


def annotate_runs(notes: list[tuple[int, Annotate]], answers: Answers) -> Steps[None]:
    """Show what workflows say of themselves; Moved where the worker does not own the run any more."""
    # In the order of their ids, as messages lock them, so that nobody waits for each other.
    given = sorted((note for _, note in notes), key=attrgetter("run_id"))
    found = {run_id for (run_id,) in (yield ManyRows("annotate_runs", given)).rows}
    applied = [note for note in given if note.run_id in found]
    for index, note in notes:
        if note.run_id not in found:
            again = yield from _annotate_changed(note)
            if again is None:
                answer_group(answers, index, Moved())
            else:
                applied.append(again)
    changed = [(note.run_id, note.namespace, note.attributes) for note in applied if note.attributes is not None]
    if changed:
        yield from _renew(changed)


def _annotate_changed(note: Annotate) -> Steps[Annotate | None]:
    """Make the code's change to attributes that somebody outside has changed; None when the run is not the worker's."""
    run = (yield Query("run_owner", {"run_id": note.run_id, "namespace": note.namespace})).first
    if run is None or run[0] != note.worker_id or note.patch is None:
        return None
    attributes = merged(run[1], msgspec.json.decode(note.patch))
    again = note._replace(before=run[1], attributes=attributes)
    return again if (yield ManyRows("annotate_runs", [again])).rows else None


def set_attributes(given: SetAttributes) -> Steps[Answer | None]:
    """Set attributes from outside; Moved when they are others by now."""
    if (yield Query("set_attributes", given._asdict())).count != 1:
        return Moved()
    yield from _renew([(given.run_id, given.namespace, given.attributes)])
    return None


def _renew(changed: list[tuple[str, str, str]]) -> Steps[None]:
    """Let runs be found by what their attributes are now."""
    yield ManyRows("drop_attributes", [(run_id,) for run_id, *_ in changed])
    rows = [row for each in changed for row in attribute_rows(*each)]
    if rows:
        yield ManyRows("renew_attributes", rows)
