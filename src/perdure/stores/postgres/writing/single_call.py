"""A batch in one round trip: what is sent to our function in the database, and what its answer means.

In:   groups of operations.
Out:  their rows, if they hold only what goes in bulk; the answers to the groups, if nothing of them is refused.
"""

from collections.abc import Sequence
from typing import TypeAlias

import msgspec

from perdure.stores.operations import Operation
from perdure.stores.rules.batch import UPDATES, apply_sorted, post_messages
from perdure.stores.rules.questions import Bulk, Found
from perdure.stores.rules.sorting import Answers, Sorted, is_torn

Rows: TypeAlias = dict[str, list[Sequence[object]]]


class Told(msgspec.Struct):
    """What a batch in one round trip is answered with; what is not of this is as it was asked for."""

    fenced: bool = False
    posted: list[tuple[int, str, str, str, int]] | None = None
    counts: list[tuple[str, int]] | None = None


def rows_of(groups: Sequence[Sequence[Operation]]) -> tuple[Rows, Answers] | None:
    """The rows of a batch that holds only what goes in bulk, and its answers if nothing is refused; None for others."""
    rows: Rows = {}
    batch = Sorted(groups)
    if batch.single:
        return None
    steps = apply_sorted(batch)
    try:
        question = next(steps)
        while isinstance(question, Bulk):
            rows.setdefault(question.name, []).extend(question.rows)
            question = steps.send(_as_hoped(question))
    except StopIteration as end:
        return None if is_torn(groups, end.value) else (rows, end.value)
    steps.close()
    return None


def _as_hoped(question: Bulk) -> Found:
    """What a bulk statement finds when nothing is in its way."""
    match question.name:
        case "post_messages":
            return Found((), [(0, row[0], row[1]) for row in question.rows], len(question.rows))
        case "count_posted":
            return Found((), [(row[0], row[1]) for row in question.rows], len(question.rows))
        case name if name in UPDATES.values():
            return Found((), [(row[0],) for row in question.rows], len(question.rows))
        case _:
            return Found((), (), len(question.rows))


def answers_to(groups: Sequence[Sequence[Operation]], told: Told) -> Answers:
    """The answers to the messages of a batch, none of which was refused."""
    batch = Sorted(groups)
    answers: Answers = dict(batch.late)
    steps = post_messages(batch.posts, answers)
    next(steps)
    try:
        steps.send(Found((), told.posted or (), 0))
        steps.send(Found((), told.counts or (), 0))
    except StopIteration:
        return answers
    raise AssertionError("messages that were posted leave nothing to ask")
