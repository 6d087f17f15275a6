"""Attributes: how what runs say of themselves is written, so that they are found by it.

In:   new runs, and what workflows say later.
Out:  questions to the database: a row for each attribute, in the transaction that changes the run's own.
"""

from collections.abc import Sequence
from operator import attrgetter

from perdure.stores.answers import Answers, Moved, answer_group
from perdure.stores.operations import Annotate, InsertRichRun
from perdure.stores.rules.filters import attribute_rows
from perdure.stores.rules.questions import Bulk, Steps


def put_attributes(runs: Sequence[InsertRichRun]) -> Steps[None]:
    """Let new runs be found by their attributes."""
    rows = [row for run in runs for row in attribute_rows(run.run_id, run.namespace, run.attributes)]
    if rows:
        yield Bulk("put_attributes", rows)


def annotate_runs(notes: list[tuple[int, Annotate]], answers: Answers) -> Steps[None]:
    """Show what workflows say of themselves; Moved where the worker does not own the run any more."""
    # In the order of their ids, as messages lock them, so that nobody waits for each other.
    given = sorted((note for _, note in notes), key=attrgetter("run_id"))
    found = {run_id for (run_id,) in (yield Bulk("annotate_runs", given)).rows}
    for index, note in notes:
        if note.run_id not in found:
            answer_group(answers, index, Moved())
    changed = [note for note in given if note.run_id in found and note.attributes is not None]
    if changed:
        yield Bulk("drop_attributes", [(note.run_id,) for note in changed])
        rows = [row for note in changed for row in attribute_rows(note.run_id, note.namespace, note.attributes)]
        if rows:
            yield Bulk("renew_attributes", rows)
