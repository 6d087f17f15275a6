"""A batch in one round trip: what is sent to our function in the database, and what its answer means.

In:   groups of operations.
Out:  their rows, if they hold only what goes in bulk; the answers to the groups, if nothing of them is refused.
"""

from collections.abc import Sequence
from itertools import islice
from typing import TypeAlias

import msgspec

from perdure.stores.answers import Answers
from perdure.stores.operations import Operation
from perdure.stores.rules.batch import Sorted, apply_sorted, is_torn
from perdure.stores.rules.changes import moment_of
from perdure.stores.rules.inbox import post_messages
from perdure.stores.rules.outbox import is_skipped
from perdure.stores.rules.questions import Found, ManyRows
from perdure.stores.rules.table import Part, Stage, parts_of_single_call

Rows: TypeAlias = dict[str, list[Sequence[object]]]
# Beside the rows of statements, the time that a batch is of, when it changes what people see of runs.
Given: TypeAlias = dict[str, "list[Sequence[object]] | int"]

# What follows on messages that were posted; its rows are made by the function itself.
COUNT_POSTED = "count_posted"
# They answer with all columns of their rows.
ANSWERED_WHOLE = {"check_fences", "expect_owners"}


class Told(msgspec.Struct):
    """What a batch in one round trip is answered with; what is not of this is as it was asked for."""

    fenced: bool = False
    posted: list[tuple[int, str, str, str, int]] | None = None
    counts: list[tuple[str, int]] | None = None


def rows_of(groups: Sequence[Sequence[Operation]]) -> tuple[Given, Answers] | None:
    """The rows of a batch that holds only what goes in bulk, and its answers if nothing is refused; None for others."""
    rows: Rows = {}
    batch = Sorted(groups)
    # What schedules skip is seldom, and told in steps.
    if batch.stages[Stage.SINGLE] or any(map(is_skipped, batch.decisions)):
        return None
    parts = parts_of_single_call()
    steps = apply_sorted(batch)
    try:
        question = next(steps)
        while isinstance(question, ManyRows) and (question.name in parts or question.name == COUNT_POSTED):
            rows.setdefault(question.name, []).extend(question.rows)
            question = steps.send(_as_hoped(question))
    except StopIteration as end:
        if is_torn(groups, end.value):
            return None
        news = [*islice((operation for _, operation in batch.shown()), 1), *batch.appended[:1]]
        return {**rows, **({"now": moment_of(news)} if news else {})}, end.value
    steps.close()
    return None


def _as_hoped(question: ManyRows) -> Found:
    """What a bulk statement finds when nothing is in its way."""
    rows = question.rows
    if question.name == COUNT_POSTED:
        return Found((), [(row[0], row[1]) for row in rows], len(rows))
    match parts_of_single_call()[question.name]:
        case Part.POSTING:
            return Found((), [(0, row[0], row[1]) for row in rows], len(rows))
        case Part.RETURNING:
            return Found((), [row if question.name in ANSWERED_WHOLE else (row[0],) for row in rows], len(rows))
        case Part.PLAIN | Part.COUNTED:
            return Found((), (), len(rows))


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
