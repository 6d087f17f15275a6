"""How the tables in memory are asked: questions of the rules become statements, one step after another.

In:   a view, and the questions of the real rules.
Out:  after each statement Progress, while one waits Blocked, and at the end what the questions come to.
"""

from typing import TypeVar, assert_never

from perdure.stores.answers import Committed, Fenced
from perdure.stores.operations import Batch
from perdure.stores.queries import ONLY_SQLITE
from perdure.stores.rules.batch import apply_groups, apply_singly, is_torn
from perdure.stores.rules.questions import (
    NOTHING,
    Found,
    ManyRows,
    Query,
    Question,
    Release,
    Savepoint,
    Several,
    Text,
)
from perdure.stores.rules.questions import Steps as Questions
from tests.simulation.memory import (
    access_key_statements,
    announcement_statements,
    change_statements,
    claim_statements,
    fork_statements,
    key_statements,
    message_statements,
    namespace_statements,
    outbox_statements,
    output_statements,
    run_statements,
    schedule_statements,
    worker_statements,
)
from tests.simulation.memory.statements import STATEMENTS
from tests.simulation.memory.view import Progress, Refused, Steps, View

T = TypeVar("T")

# Each of them puts its statements into the list.
ROOMS = (
    announcement_statements,
    change_statements,
    claim_statements,
    fork_statements,
    key_statements,
    message_statements,
    namespace_statements,
    access_key_statements,
    outbox_statements,
    output_statements,
    run_statements,
    schedule_statements,
    worker_statements,
)


def write_batch(view: View, batch: Batch) -> Steps[Committed | Fenced]:
    """All statements of a batch; what is answered is so once the transaction is committed."""
    if not (yield from holds_epoch(view, batch)):
        return Fenced()
    try:
        answers = yield from answer(view, apply_groups(batch.groups))
    except Exception:  # noqa: BLE001 - it is one group's, which is found and answered below
        answers = None
    if answers is not None and not is_torn(batch.groups, answers):
        return Committed(answers)
    view.begin_again()
    # This is another transaction: what held in the first one may not hold in it.
    if not (yield from holds_epoch(view, batch)):
        return Fenced()
    return Committed((yield from answer(view, apply_singly(batch.groups))))


def holds_epoch(view: View, batch: Batch) -> Steps[bool]:
    """Whether the worker of a batch still has its epoch, which nobody can raise before the transaction ends."""
    if batch.worker_id is None:
        return True
    found = yield from _ask(view, Query("fence", {"worker_id": batch.worker_id, "epoch": batch.epoch}))
    return found.count == 1


def answer(view: View, steps: Questions[T]) -> Steps[T]:
    """Ask one question after the other until there is an answer."""
    try:
        question = next(steps)
        while True:
            try:
                found = yield from _ask(view, question)
            except Refused as refused:
                question = steps.throw(refused)
            else:
                question = steps.send(found)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]  # what the questions come to


def _ask(view: View, question: Question) -> Steps[Found]:
    view.next_statement()
    match question:
        case Query(name) if name in ONLY_SQLITE and not view.tables.has_turns:
            return NOTHING
        case Query(name, parameters):
            found = yield from STATEMENTS[name](view, **parameters)
            yield Progress(name)
        case ManyRows(name, rows):
            found = yield from STATEMENTS[name](view, rows)
            yield Progress(name)
        case Several(names, parameters):
            # One statement, all of which sees the same.
            each: list[object] = []
            for name in names:
                rows = (yield from STATEMENTS[name](view, **parameters)).rows
                each += [rows]
            found = Found(names, each, len(each))
            yield Progress(", ".join(names))
        case Savepoint():
            view.marks.append(view.savepoint())
            found = NOTHING
        case Release(undo):
            mark = view.marks.pop()
            if undo:
                view.roll_back_to(mark)
            found = NOTHING
        case Text():
            raise NotImplementedError("a query without a name is not known here")
        case _:
            assert_never(question)
    return found
