"""Rows of runs: how they are read, whole, whichever query finds them.

In:   a question that finds rows of runs.
Out:  records; a row that cannot be read is a value among them, or Garbled.
"""

import msgspec

from perdure.errors import RunUnreadable
from perdure.stores.records import RunRow
from perdure.stores.rows import Garbled
from perdure.stores.rules.questions import Query, Question, Steps
from perdure.stores.unreadable import misfit, run_row


def unreadable(url: str, run_id: str, id: object, error: Garbled) -> RunUnreadable:
    return RunUnreadable(url, run_id, id if isinstance(id, str) else run_id, str(error))


def run_rows(name: str, **parameters: object) -> Steps[list[RunRow]]:
    """The runs a named query finds, with what is too large for their rows; Garbled, and which run it is."""
    found = yield from each_run("", Query(name, parameters))
    for each in found:
        if isinstance(each, RunUnreadable):
            raise Garbled(f"run {each.id!r} cannot be read: {each.trouble}")
    return [each for each in found if isinstance(each, RunRow)]


def run_rows_of(question: Question) -> Steps[list[RunRow | RunUnreadable]]:
    return [*(yield from quick_rows(question))]


def quick_rows(question: Question) -> Steps[list[RunRow]]:
    found = yield from _whole_rows(question)
    try:
        return msgspec.convert(found, list[RunRow])
    except msgspec.ValidationError as error:
        raise Garbled(misfit(error)) from None


def each_run(url: str, question: Question) -> Steps[list[RunRow | RunUnreadable]]:
    found = yield from _whole_rows(question)
    return [run_row(url, columns) for columns in found]


def _whole_rows(question: Question) -> Steps[list[dict[str, object]]]:
    """Rows of runs, by column, with what is too large for them."""
    found = (yield question).dicts()
    lacking = [row for row in found if _lacks_input(row) or _lacks_outcome(row)]
    if lacking:
        payloads = yield Query("payloads_of", {"run_ids": [row["run_id"] for row in lacking]})
        bodies = {(run_id, seq): body for run_id, seq, body in payloads.rows}
        for row in lacking:
            if _lacks_input(row):
                row["input"] = bodies.get((row["run_id"], 1))
            if _lacks_outcome(row):
                row["outcome"] = bodies.get((row["run_id"], row["last_seq"]))
    return found


def _lacks_input(row: dict[str, object]) -> bool:
    return row["input"] is None


def _lacks_outcome(row: dict[str, object]) -> bool:
    return row["outcome"] is None and row["closed_at"] is not None
