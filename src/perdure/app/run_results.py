"""Results of runs as callers get them, and values on their way to a run: of the right type, or the error for it."""

from dataclasses import is_dataclass
from typing import Any, assert_never

import msgspec

from perdure.authoring.channels import Channel
from perdure.authoring.durations import Duration
from perdure.authoring.options import checked_text, milliseconds
from perdure.authoring.signals import Signal
from perdure.codec import ValueType
from perdure.engine.endings import stopped
from perdure.engine.held import way_out
from perdure.engine.hindrances import told_time
from perdure.engine.ports import Broadcast, Ending
from perdure.errors import BadOption, NotAnswered, PerdureError, RequestRefused, RunFailed
from perdure.ids import Ids, checked_id
from perdure.kernel.messages import DeferredFailure, DeferredResult, SignalSent
from perdure.kernel.requests import Answered, LeftUnanswered, Refused, RequestAnswer
from perdure.views.run import Wait
from perdure.views.run_views import RunViews

ANY = ValueType(Any)


# What stands for a value that was not given; None is one.
NOTHING: Any = object()


async def state_of(views: RunViews, namespace: str, run_id: str) -> str:
    """The end of a sentence about a run that is open: whether it goes on."""
    try:
        row = await views.describe(namespace, run_id)
        while row.continued_to is not None:
            row = await views.describe(namespace, row.continued_to)
        hindered = [_told(wait) for wait in row.waiting_for if wait.reason]
    except PerdureError:
        # That it took too long is what the caller has to know; the rest would only have helped.
        return ""
    if row.held is None and hindered:
        return f": {hindered[0]}"
    if row.held is None:
        return "; it goes on" if row.closed_at is None else ", and has ended since"
    return f": it is held ({row.held}) and does not go on; {way_out(row.workflow_id)}"


def _told(wait: Wait) -> str:
    """Why a wait may be long."""
    what = "it" if wait.kind in {"worker", "rest"} else f"the {wait.kind} {wait.name}"
    if wait.until is not None:
        return f"{what} rests until {told_time(wait.until)}, {wait.reason}"
    since = "" if wait.since is None else f" since {told_time(wait.since)}"
    return f"{what} waits{since} because {wait.reason}"


def result_of(id: str, ending: Ending, kind: ValueType) -> object:
    """The result of a run that ended so, or the error for it."""
    if ending.result is not None:
        return kind.restore(ending.result, "the result")
    if ending.failure is None:
        raise stopped(id, ending)
    from perdure.worker.failures.failures import revive  # noqa: PLC0415 - a client of runs that do well needs no worker

    error = RunFailed(id, ending.failure.summary)
    error.__cause__ = revive(ending.failure)
    if ending.failure.traceback:
        # Where it was raised, which may be another process; the frames themselves are gone.
        error.add_note(ending.failure.traceback.rstrip())
    raise error


def named(given: object, kind: type[Channel[Any]]) -> tuple[str, ValueType]:
    """The name of a channel and the type of what it takes, which is not known when the name is all that was given."""
    if isinstance(given, str):
        return checked_id(f"{kind.what} name", given), ANY
    if not isinstance(given, kind):
        raise BadOption(f"{given!r} is not a {kind.what}; give a {kind.__name__}(...) or the name of one")
    return given.name, given.payload


def restored_answer(id: str, name: str, answer: RequestAnswer, kind: ValueType) -> object:
    """What the workflow answered, or the error for it."""
    match answer:
        case Answered(value):
            return kind.restore(value, f"the answer to the request {name!r}")
        case Refused(reason):
            raise RequestRefused(reason, name)
        case LeftUnanswered():
            raise NotAnswered(id, name)
        case _:
            assert_never(answer)


def own_type(value: object) -> ValueType:
    """The type by which a value is written when nobody said one: its own, if that is a class with fields."""
    kind = type(value)
    has_fields = is_dataclass(kind) or issubclass(kind, msgspec.Struct) or hasattr(kind, "model_validate_json")
    return ValueType(kind) if has_fields else ANY


def resolution(name: str, kind: ValueType, value: object, error: str | None) -> DeferredResult | DeferredFailure:
    """What a deferred is resolved with: a value or an error, one of them."""
    if (value is NOTHING) == (error is None):
        raise BadOption(f"resolve the deferred {name!r} with a value or with error=..., one of them")
    if error is not None:
        if isinstance(error, str) and not error.strip():
            raise BadOption(f"the error of the deferred {name!r} says what is wrong, in a text that is not empty")
        return DeferredFailure(name, checked_text("error", error))
    data, _ = kind.record(value, f"the deferred {name!r}")
    return DeferredResult(name, msgspec.Raw(data))


def broadcast_of(signal: Signal[Any] | str, payload: object, id: str | None, delay: Duration, ids: Ids) -> Broadcast:
    """A signal for many runs; without an id of the caller's it counts once in each as well."""
    name, kind = named(signal, Signal)
    data, _ = kind.record(payload, f"the signal {name!r}")
    message_id = ids.token() if id is None else f"signal:{checked_id('signal id', id)}"
    return Broadcast(SignalSent(name, msgspec.Raw(data)), message_id, milliseconds(delay, "delay"))
