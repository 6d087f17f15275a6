"""How a batch's groups become statements, whatever the database.

In:   groups of operations, and a database that answers inside a transaction.
Out:  for each group that is not plainly applied, its answer.

The table of operations says at which stage of a batch each is done, and how. What many runs do in every batch goes
in bulk: one statement for all rows of a kind. What can be refused is done one by one and looked at.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import Any, TypeAlias

from perdure.kernel.status import Status
from perdure.stores.answers import Answer, Answers, Applied, Broken, Closed, Moved, answer_group, is_refused
from perdure.stores.operations import (
    ExpectDeadline,
    ExpectOwner,
    Fence,
    ForkRun,
    Listen,
    Operation,
    PauseRun,
    PostDelayed,
    PostMessage,
    ResumeRun,
)
from perdure.stores.rows import Garbled
from perdure.stores.rules.changes import log_shown, moment_of
from perdure.stores.rules.inbox import OF_CALLERS, answer_unposted, post_messages
from perdure.stores.rules.outbox import Ended, queue_applied
from perdure.stores.rules.pausing import pause_runs, resume_runs
from perdure.stores.rules.questions import Query, Release, Savepoint, Steps
from perdure.stores.rules.runs import append_events
from perdure.stores.rules.schedules import note_decisions
from perdure.stores.rules.table import TABLE, Rule, Stage
from perdure.stores.rules.workers import check_fences

Groups: TypeAlias = Sequence[Sequence[Operation]]
# The stages at which something is done that people see of a run.
_SHOWN = (Stage.STARTS, Stage.CANCELS, Stage.UPDATES, Stage.SINGLE, Stage.ENDS)


class Sorted:
    """The operations of a batch by stage, and in each by the rule that applies them.

    Beside an operation stands the number of its group, but not at the stage of bulk, where none is refused.
    """

    def __init__(self, groups: Groups) -> None:
        self.stages: list[dict[Callable[..., Steps[Any]], list[Any]]] = [{} for _ in Stage]
        # Of the runs that end in this batch how, and what is said to later messages for them.
        self._ended: dict[str, str] = {}
        # The runs that something else is done with: nothing may come before that.
        self._touched: set[str] = set()
        self.late: Answers = {}
        # Those among them that may be there already, for they have ids of their callers.
        self.known_late: list[tuple[int, PostMessage | PostDelayed]] = []
        # The ends of runs by operations which do not name them.
        self.ended: list[Ended] = []
        bulk = self.stages[Stage.BULK]
        for index, group in enumerate(groups):
            for operation in group:
                rule = TABLE[type(operation)]
                if rule.stage is Stage.BULK:
                    rows = bulk.get(rule.apply)
                    if rows is None:
                        rows = bulk[rule.apply] = []
                    rows.append(operation)
                else:
                    self._add(index, operation, rule)

    @property
    def posts(self) -> list[Any]:
        """The messages for runs."""
        return self.stages[Stage.MESSAGES].get(post_messages, [])

    @property
    def has_listener(self) -> bool:
        """Whether somebody begins to listen in this very batch."""
        # Not a sink: it is told of all that changes after it was answered that it is there, and this batch was before.
        return any(isinstance(each, Listen) for rows in self.stages[Stage.SINGLE].values() for _, each in rows)

    @property
    def appended(self) -> list[Any]:
        """The events of runs."""
        return self.stages[Stage.BULK].get(append_events, [])

    @property
    def decisions(self) -> list[Any]:
        """The decisions of schedules."""
        return self.stages[Stage.BULK].get(note_decisions, [])

    @property
    def is_news(self) -> bool:
        """Whether anybody may want to be told of something in it."""
        return next(self.shown(), None) is not None or bool(self.appended or self.decisions or self.ended)

    def shown(self) -> Iterator[tuple[int, Any]]:
        """What changes what people see of the run it names."""
        rows = chain(
            (rows for stage in _SHOWN for rows in self.stages[stage].values()),
            (self.stages[Stage.MESSAGES].get(apply, ()) for apply in (pause_runs, resume_runs)),
        )
        return (numbered for each in rows for numbered in each if TABLE[type(numbered[1])].is_shown)

    def _add(self, index: int, operation: Any, rule: Rule) -> None:
        stage, apply = rule.stage, rule.apply
        if stage is Stage.MESSAGES and operation.run_id in self._ended:
            self._add_late(index, operation)
            return
        # What comes for one that is continued is handed on with all it has not read.
        if stage is Stage.ENDS and operation.status != Status.CONTINUED:
            self._ended[operation.run_id] = operation.status
        if stage is Stage.UPDATES and operation.run_id not in self._touched:
            self._touched.add(operation.run_id)
        elif stage is Stage.UPDATES or stage is Stage.SINGLE:
            stage, apply = Stage.SINGLE, self._one_by_one
            self._touched |= touched_runs((operation,))
        self.stages[stage].setdefault(apply, []).append((index, operation))

    def _one_by_one(self, operations: list[tuple[int, Any]], answers: Answers) -> Steps[None]:
        """Nothing of a group that was refused: what else it wants must not wait for rows of others.

        Forks first: a run that continues in this batch has not handed on yet what was sent to it.
        """
        for index, operation in sorted(operations, key=_is_no_fork):
            if is_refused(answers, index):
                continue
            rule = TABLE[type(operation)]
            if rule.stage is Stage.UPDATES:
                yield from rule.apply([(index, operation)], answers)
                continue
            answer = yield from rule.apply(operation)
            if isinstance(answer, Ended):
                self.ended.append(answer)
                answer = answer.answer
            if answer is not None:
                answer_group(answers, index, answer)

    def _add_late(self, index: int, operation: Operation) -> None:
        if isinstance(operation, PostMessage | PostDelayed) and operation.message_id.startswith(OF_CALLERS):
            self.known_late.append((index, operation))
        elif isinstance(operation, ResumeRun):
            answer_group(self.late, index, Moved())
        elif isinstance(operation, PostMessage | PostDelayed | PauseRun):
            answer_group(self.late, index, Closed(self._ended[operation.run_id]))


def _is_no_fork(numbered: tuple[int, Any]) -> bool:
    return not isinstance(numbered[1], ForkRun)


def apply_groups(groups: Groups, *, is_heard: bool = True) -> Steps[Answers]:
    """Apply all groups together, and log what changed for those who listen; unless it is known that nobody does."""
    batch = Sorted(groups)
    answers = yield from apply_sorted(batch)
    if answers and is_torn(groups, answers):
        return answers
    if not is_heard and not batch.has_listener:
        return answers
    # Last, when the transaction has written something: who begins to listen then sees that it is under way.
    if batch.is_news and (listeners := (yield Query("listeners", {})).rows):
        shown = [each for index, each in batch.shown() if not is_refused(answers, index)]
        yield from log_shown(shown, listeners)
        told = (shown, batch.appended, batch.decisions, batch.ended)
        yield from queue_applied(*told, moment_of([each for part in told for each in part]), listeners)
    return answers


def apply_sorted(batch: Sorted) -> Steps[Answers]:
    """Apply a batch, stage by stage."""
    answers: Answers = dict(batch.late)
    for stage in batch.stages:
        for apply, rows in stage.items():
            yield from apply(rows, answers)
    if batch.known_late:
        yield from answer_unposted(batch.known_late, answers)
    return answers


# Group by group


def apply_singly(groups: Groups, apply: Callable[[Groups], Steps[Answers]] = apply_groups) -> Steps[Answers]:
    """Apply each group in a savepoint of its own; one that the database refuses is Broken, the others go on."""
    answers: Answers = {}
    broken: set[str] = set()
    fences = [(index, each) for index, group in enumerate(groups) for each in group if isinstance(each, Fence)]
    if fences:
        # All of them in their order, before any group has locked something; each group finds out about its own.
        yield from check_fences(fences, {})
    for index, group in enumerate(groups):
        touched = touched_runs(group)
        if touched & broken:
            answers[index] = Broken("an earlier change of the same run was refused")
            continue
        found = yield from _apply_one(group, apply)
        if isinstance(found, Broken):
            broken |= touched
        if found is not None:
            answers[index] = found
    return answers


def _apply_one(group: Sequence[Operation], apply: Callable[[Groups], Steps[Answers]]) -> Steps[Answer | None]:
    yield Savepoint()
    found: Answer | None
    try:
        found = None if (guards := _guards(group)) is None else (yield from apply([guards])).get(0)
        if found is None:
            found = (yield from apply([group])).get(0)
        is_void = found is not None and is_torn([group], {0: found})
    except Exception as error:  # noqa: BLE001 - whatever it was, it is this group's and not its neighbours'
        found, is_void = Broken(_trouble(error)), True
    yield Release(undo=is_void)
    return found


def _guards(group: Sequence[Operation]) -> list[Operation] | None:
    """What a group of a remote worker expects; asked first, for the rest may fail where it does not hold."""
    return (
        [each for each in group if isinstance(each, Fence | ExpectOwner | ExpectDeadline)]
        if isinstance(group[0], Fence)
        else None
    )


def _trouble(error: Exception) -> str:
    """What is wrong with a group, in one line."""
    if isinstance(error, Garbled):
        return str(error)
    return f"{type(error).__name__}: {(str(error).strip() or type(error).__name__).splitlines()[0]}"


def is_torn(groups: Groups, answers: Answers) -> bool:
    """Whether one operation of a group was refused while others of that group were applied."""
    return any(len(groups[index]) > 1 and not isinstance(answer, Applied) for index, answer in answers.items())


def touched_runs(group: Sequence[Operation]) -> set[str]:
    """The runs that a group is about."""
    return {getattr(operation, "run_id", "") for operation in group} - {""}
