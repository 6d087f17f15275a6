"""Events as sinks get them: made from their rows, and from what histories hold of them."""

from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import msgspec

from perdure.kernel.failure import Failure
from perdure.kernel.outbox import ENDED, GAP, SKIPPED, STARTED, STEP_COMPLETED, STEP_FAILED, OutboxEvent, event_id
from perdure.kernel.status import Status
from perdure.stores.records import OutboxRow
from perdure.stores.rules.outbox import STATUS_OF

LONGEST_VALUE = 16 * 1024
LONGEST_ERROR = 2000

# Events whose histories hold why.
_FAILED, _STOPPED = ENDED[Status.FAILED], {ENDED[Status.CANCELLED], ENDED[Status.TERMINATED], ENDED[Status.TIMED_OUT]}
_TROUBLES = {_FAILED, STEP_FAILED, *_STOPPED}
# Events that have a value, what it is called, and where it stands in what the history holds.
_VALUES = {STARTED: "input", ENDED[Status.COMPLETED]: "result", STEP_COMPLETED: "result"}


class _CompletedStep(msgspec.Struct):
    """What the events of activities have, wherever they ran."""

    result: msgspec.Raw


class _FailedStep(msgspec.Struct):
    failure: Failure


def needs_history(row: OutboxRow, *, include_values: bool) -> bool:
    """Whether an event cannot be told from its row alone."""
    return row.type in _TROUBLES or (include_values and row.type in _VALUES)


def event_of(row: OutboxRow, sink: str, namespace: str, body: str | None, *, include_values: bool) -> OutboxEvent:
    """The event in a row; `body` is what the history holds of it, if that is needed."""
    is_runs = row.type not in {SKIPPED, GAP}
    data = _of_run(row) if is_runs else _of_sink(row, sink)
    # What a history holds that cannot be read is told by the audit; the event is true without.
    with suppress(msgspec.MsgspecError):
        if body is not None and row.type in _TROUBLES:
            data |= _trouble(row.type, body)
        if body is not None and include_values and row.type in _VALUES:
            data |= _value(row.type, body)
    return OutboxEvent(
        id=event_id(row.run_id, row.type, row.number, row.at),
        type=row.type,
        at=moment(row.at),
        namespace=namespace,
        run_id=row.run_id if is_runs else None,
        workflow_id=row.workflow_id if is_runs else None,
        workflow=row.workflow,
        number=row.number,
        data=data,
    )


def moment(at: int) -> datetime:
    return datetime.fromtimestamp(at / 1000, UTC)


def _of_run(row: OutboxRow) -> dict[str, object]:
    status = Status.PENDING if row.type == STARTED else STATUS_OF.get(row.type, Status.RUNNING)
    data: dict[str, object] = {
        "run_id": row.run_id,
        "workflow_id": row.workflow_id,
        "workflow": row.workflow,
        "parent_id": row.parent_id,
        "entity_id": row.entity_id,
        "correlation_id": row.correlation_id,
        "number": row.number,
        "status": str(status),
        "error": None,
        "step": row.step,
        "attributes": {} if row.attributes is None else msgspec.json.decode(row.attributes),
    }
    return data if row.held is None else data | {"held": row.held}


def _of_sink(row: OutboxRow, sink: str) -> dict[str, object]:
    told = msgspec.json.decode(row.attributes or "{}", type=dict[str, Any])
    if row.type == GAP:
        return {"sink": sink, "since": moment(told["since"]), "until": moment(told["until"])}
    of_schedule: dict[str, object] = {"schedule": row.workflow_id, "workflow": row.workflow, "number": row.number}
    return of_schedule | told | {"time": moment(told["time"])}


def _trouble(type: str, body: str) -> dict[str, object]:
    """Why a run or a step did not do well."""
    if type in _STOPPED:
        reason = msgspec.json.decode(body, type=dict[str, Any]).get("reason")
        return {"error": None if reason is None else {"type": None, "message": str(reason)[:LONGEST_ERROR]}}
    if type == STEP_FAILED:
        failure = msgspec.json.decode(body, type=_FailedStep).failure
    else:
        failure = msgspec.json.decode(body, type=Failure)
    return {"error": {"type": failure.type, "message": failure.message[:LONGEST_ERROR]}}


def _value(type: str, body: str) -> dict[str, object]:
    """What went in or came out; left out, and told so, when it is too large."""
    name, value = _VALUES[type], body.encode()
    if type == STEP_COMPLETED:
        value = bytes(msgspec.json.decode(value, type=_CompletedStep).result)
    return {"left_out": [name]} if len(value) > LONGEST_VALUE else {name: msgspec.json.decode(value)}
