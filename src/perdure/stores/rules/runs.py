"""Runs: how they are started, go on, are changed and end, whatever the database.

In:   operations on runs, each with the number of its group.
Out:  questions to the database; the answers of groups that are not plainly applied.
"""

from collections.abc import Sequence
from typing import Any

from perdure.stores.answers import Answers, KeptKey, Moved, Taken, answer_group
from perdure.stores.operations import AppendEvent, EndRun, InsertRichRun, InsertRun, NoteCancel, SupersedeRun
from perdure.stores.rules.attributes import put_attributes
from perdure.stores.rules.questions import ManyRows, Query, Steps
from perdure.stores.rules.run_rows import run_rows

# What is longer than this does not stay in its row.
LONGEST_IN_ROW = 1024


# Starts


def supersede_runs(supersedes: list[tuple[int, SupersedeRun]], answers: Answers) -> Steps[None]:
    """Make way for other runs under the same workflow_ids; Moved where a run may not."""
    for index, supersede in supersedes:
        if (yield Query("supersede_run", supersede._asdict())).count != 1:
            answer_group(answers, index, Moved())


def insert_runs(inserts: list[tuple[int, InsertRun | InsertRichRun]], answers: Answers) -> Steps[None]:
    """Start runs, and answer whose id is taken by another run, or by the run itself."""
    plain, rich, payloads = _rows_of_inserts([run for _, run in inserts])
    inserted = (yield ManyRows("insert_runs", plain)).count if plain else 0
    if rich:
        inserted += (yield ManyRows("insert_rich_runs", rich)).count
    told = [run for _, run in inserts if type(run) is InsertRichRun and run.attributes is not None] if rich else []
    owners: dict[tuple[str, str], Sequence[Any] | None] = {}
    if inserted < len(inserts):
        for _, run in inserts:
            found = yield Query("run_owner", {"run_id": run.run_id, "namespace": run.namespace})
            owners[run.run_id, run.namespace] = found.first
        payloads = [payload for payload in payloads if owners[str(payload[1]), str(payload[0])] is not None]
        # One that was there before may have changed them by now.
        told = [run for run in told if (owners[run.run_id, run.namespace] or (None, None))[1] == run.attributes]
    # Before anybody is told of a run in this batch: whoever reads it must find it whole.
    if payloads:
        yield ManyRows("put_payloads", payloads)
    if told:
        yield from put_attributes(told, are_new=not owners)
    if owners:
        for index, run in inserts:
            if isinstance(answers.get(index), KeptKey):
                # It is a start that was made before.
                continue
            yield from _answer_insert(index, run, owners[run.run_id, run.namespace], answers)


def _rows_of_inserts(
    runs: Sequence[InsertRun | InsertRichRun],
) -> tuple[list[Sequence[object]], list[Sequence[object]], list[Sequence[object]]]:
    """The rows of plain runs and of rich ones, and what is too large for them."""
    plain: list[Sequence[object]] = []
    rich: list[Sequence[object]] = []
    payloads: list[Sequence[object]] = []
    for run in runs:
        rows = plain if type(run) is InsertRun else rich
        if len(run.input) <= LONGEST_IN_ROW:
            rows.append(run)
        else:
            payloads.append((run.namespace, run.run_id, 1, run.input))
            rows.append(run._replace(input=None))  # type: ignore[arg-type]  # the column is empty, the payload has it
    return plain, rich, payloads


def _answer_insert(
    index: int, run: InsertRun | InsertRichRun, owner: Sequence[Any] | None, answers: Answers
) -> Steps[None]:
    """Who has the id that was taken; or the run itself, if it was there before."""
    if owner is None:
        (holder,) = yield from run_rows("latest_run", namespace=run.namespace, workflow_id=run.workflow_id)
        answers[index] = Taken(holder)
    elif run.owner is not None and owner[0] != run.owner:
        # The worker that inserts it as its own must not begin it once more.
        (found,) = yield from run_rows("run", namespace=run.namespace, run_id=run.run_id)
        answers[index] = Taken(found)


# Going on


def note_cancels(cancels: list[tuple[int, NoteCancel]], _: Answers) -> Steps[None]:
    """Show in the rows of runs that they were asked to stop."""
    for _index, cancel in cancels:
        yield Query("note_cancel", cancel._asdict())


def append_events(appends: list[AppendEvent], _: Answers) -> Steps[None]:
    """Write facts of runs that the worker owns."""
    rows, payloads = _rows_of_events(appends)
    if payloads:
        yield ManyRows("put_payloads", payloads)
    yield ManyRows("append_events", rows)


def _rows_of_events(appends: list[AppendEvent]) -> tuple[list[AppendEvent], list[Sequence[object]]]:
    """The rows of events, and what is too large for them."""
    payloads: list[Sequence[object]] = [
        (event.namespace, event.run_id, event.seq, event.body) for event in appends if len(event.body) > LONGEST_IN_ROW
    ]
    if payloads:
        appends = [e._replace(body=None) if len(e.body) > LONGEST_IN_ROW else e for e in appends]  # type: ignore[arg-type]  # as above
    return appends, payloads


# Ends


def end_runs(ends: list[tuple[int, EndRun]], _: Answers) -> Steps[None]:
    """Close runs; LookupError when the worker does not own one of them."""
    rows, payloads = _rows_of_ends(ends)
    if payloads:
        yield ManyRows("put_payloads", payloads)
    if (yield ManyRows("end_runs", rows)).count != len(rows):
        raise LookupError("a run to be closed is not owned by the worker that closes it")


def _rows_of_ends(
    ends: list[tuple[int, EndRun]],
) -> tuple[list[Sequence[object]], list[Sequence[object]]]:
    """What the rows of runs become, and what is too large for them."""
    rows: list[Sequence[object]] = []
    payloads: list[Sequence[object]] = []
    for _, end in ends:
        outcome: str | None = end.outcome
        if len(end.outcome) > LONGEST_IN_ROW:
            payloads.append((end.namespace, end.run_id, end.last_seq, end.outcome))
            outcome = None
        rows.append((end.run_id, end.status, outcome, end.last_seq, end.closed_at, end.owner, end.undo))
    return rows, payloads
