"""Endings: how a run ended, told to callers that wait for it and to its parent.

In:   the fact that closed a run, or the row it is in.
Out:  an Ending, the message to the parent, the error that its code sees.
"""

from typing import assert_never

import msgspec

from perdure import errors
from perdure.engine.ports import Ending, Engine, OwnedRun
from perdure.kernel.events import (
    Closing,
    RunCancelled,
    RunCompleted,
    RunContinued,
    RunFailed,
    RunTerminated,
    RunTimedOut,
)
from perdure.kernel.failure import Failure, with_notes
from perdure.kernel.messages import ChildFailure, ChildResult
from perdure.kernel.status import Status
from perdure.stores import rows
from perdure.stores.records import RunRow


def ending(fact: Closing) -> Ending:
    """How a run ended that was closed so."""
    match fact:
        case RunCompleted(result):
            return Ending(Status.COMPLETED, result=result)
        case RunFailed(failure):
            return Ending(Status.FAILED, failure=failure)
        case RunCancelled(reason, notes):
            return Ending(Status.CANCELLED, reason=reason, notes=notes)
        case RunTerminated(reason):
            return Ending(Status.TERMINATED, reason=reason)
        case RunTimedOut(reason, notes):
            return Ending(Status.TIMED_OUT, reason=reason, notes=notes)
        case RunContinued(run_id):
            return Ending(Status.CONTINUED, next_run_id=run_id)
        case _:
            assert_never(fact)


def ending_of(row: RunRow) -> Ending:
    """How a closed run ended; Garbled."""
    return ending(closing_of(row))


def closing_of(row: RunRow) -> Closing:
    """The fact that closed a run; Garbled."""
    closing = rows.closing_event(row)
    if closing is None:
        raise rows.Garbled(f"it is {row.status}, but has lost its outcome")
    return closing.fact  # type: ignore[return-value]  # nothing else closes a run


def told_to_parent(place: str, workflow: str, child_id: str, run_id: str, fact: Closing) -> ChildResult | ChildFailure:
    """The message a parent gets when its child ends so."""
    if isinstance(fact, RunCompleted):
        return ChildResult(place, workflow, child_id, run_id, fact.result)
    return ChildFailure(place, workflow, child_id, run_id, failure_of(child_id, ending(fact)))


_ERRORS: dict[Status, type[errors.RunEnded]] = {
    Status.CANCELLED: errors.RunCancelled,
    Status.TERMINATED: errors.RunTerminated,
    Status.TIMED_OUT: errors.RunTimedOut,
}


def stopped(id: str, ending: Ending) -> errors.RunEnded:
    """The error for an end that came from outside."""
    error = _ERRORS[ending.status](id, ending.reason)
    for note in ending.notes:
        error.add_note(note)
    return error


def failure_of(child_id: str, ending: Ending) -> Failure:
    """An end without a result, as the error that the parent's code sees."""
    if ending.failure is not None:
        return ending.failure
    error = stopped(child_id, ending)
    kind = type(error)
    arguments = msgspec.Raw(msgspec.json.encode(error.args))
    return with_notes(Failure(f"{kind.__module__}.{kind.__qualname__}", str(error), arguments), ending.notes)


async def final_ending(engine: Engine, namespace: str, run_id: str, owned: OwnedRun | None) -> Ending:
    """How a run ended, or the last of those that continue it."""
    ending = await engine.client.wait(namespace, run_id, owned)
    while ending.next_run_id is not None:
        ending = await engine.client.wait(namespace, ending.next_run_id)
    return ending
