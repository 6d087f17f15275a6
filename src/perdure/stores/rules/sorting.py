"""Batches, sorted: what of one may go in which order, whatever the database.

In:   groups of operations.
Out:  the same by what is done with them.
"""

from collections.abc import Sequence
from typing import Any

from perdure.kernel.status import Status
from perdure.stores.answers import APPLIED, Answer, Applied, Closed
from perdure.stores.operations import (
    Annotate,
    AppendEvent,
    EndRun,
    HoldRun,
    InsertRichRun,
    InsertRun,
    NoteCancel,
    NoteLosses,
    NoteWaiting,
    Operation,
    ParkRun,
    PostMessage,
    RecordAttempt,
    SupersedeRun,
    TakeMessage,
    TellRun,
)

Answers = dict[int, Answer]

# What many runs do in every batch, and nobody can refuse.
_BULK = {AppendEvent, TakeMessage, RecordAttempt}


class Sorted:
    """The operations of a batch by what is done with them; numbers are those of their groups."""

    def __init__(self, groups: Sequence[Sequence[Operation]]) -> None:
        self.supersedes: list[tuple[int, SupersedeRun]] = []
        self.inserts: list[tuple[int, InsertRun | InsertRichRun]] = []
        self.posts: list[tuple[int, PostMessage | TellRun]] = []
        self.cancels: list[NoteCancel] = []
        self.bulk: dict[type[Operation], list[Operation]] = {}
        self.updates: dict[type[Operation], list[tuple[int, Any]]] = {}
        self.single: list[tuple[int, Operation]] = []
        self.ends: list[EndRun] = []
        # Of those that end in this batch how, and what is said to who writes to them after that.
        self._ended: dict[str, str] = {}
        # Those that something else is done with: nothing may come before that.
        self._touched: set[str] = set()
        self.late: Answers = {}
        bulk = self.bulk
        for index, group in enumerate(groups):
            for operation in group:
                kind = type(operation)
                if kind in _BULK:
                    rows = bulk.get(kind)
                    if rows is None:
                        rows = bulk[kind] = []
                    rows.append(operation)
                else:
                    self._add(index, operation)

    def _add(self, index: int, operation: Operation) -> None:
        match operation:
            case InsertRun() | InsertRichRun():
                self.inserts.append((index, operation))
            case SupersedeRun():
                self.supersedes.append((index, operation))
            case PostMessage() | TellRun() if operation.run_id in self._ended:
                self._add_late(index, operation)
            case PostMessage() | TellRun():
                self.posts.append((index, operation))
            case NoteCancel():
                self.cancels.append(operation)
            case EndRun():
                self.ends.append(operation)
                # What comes for one that is continued is handed on with all it has not read.
                if operation.status != Status.CONTINUED:
                    self._ended[operation.run_id] = operation.status
            case ParkRun() | HoldRun() | NoteWaiting() | Annotate() | NoteLosses() if self._is_first(operation.run_id):
                self.updates.setdefault(type(operation), []).append((index, operation))
            case _:
                self._touched |= touched_runs((operation,))
                self.single.append((index, operation))

    def _is_first(self, run_id: str) -> bool:
        """Whether nothing that is done one by one, or at any time, comes before this for a run."""
        is_first = run_id not in self._touched
        self._touched.add(run_id)
        return is_first

    def _add_late(self, index: int, operation: PostMessage | TellRun) -> None:
        if isinstance(operation, PostMessage):
            answer_group(self.late, index, Closed(self._ended[operation.run_id]))


def answer_group(answers: Answers, index: int, answer: Answer) -> None:
    """A refusal is the answer of its group, whatever its other operations say."""
    if isinstance(answers.get(index, APPLIED), Applied):
        answers[index] = answer


def is_torn(groups: Sequence[Sequence[Operation]], answers: Answers) -> bool:
    """Whether one operation of a group was refused while others of that group were applied."""
    return any(len(groups[index]) > 1 and not isinstance(answer, Applied) for index, answer in answers.items())


def is_refused(answers: Answers, index: int) -> bool:
    """Whether an operation of this group was refused."""
    return index in answers and not isinstance(answers[index], Applied)


def touched_runs(group: Sequence[Operation]) -> set[str]:
    """The runs that a group is about."""
    return {getattr(operation, "run_id", "") for operation in group} - {""}
