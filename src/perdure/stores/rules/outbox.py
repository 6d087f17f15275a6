"""The outbox: what sinks are to be told is written in the transaction that changes it, whatever the database.

In:   the operations of a batch that were applied; what became of events that were sent.
Out:  a row for each sink that wants the event; nothing but the look at `listeners` when there is no sink.

`EMITTED` says of each operation which event it is. The function that writes a batch to Postgres in a single call is
made from the same table.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from perdure.kernel.outbox import (
    BITS,
    ENDED,
    HELD,
    SKIPPED,
    STARTED,
    STEP_BITS,
    STEPS,
    SUSPENDED,
    TASK_BODY,
    TASK_STEPS,
)
from perdure.kernel.status import Status
from perdure.stores import operations
from perdure.stores.answers import Answer, Applied, Moved
from perdure.stores.operations import (
    DeleteSink,
    EndGap,
    InsertSink,
    MoveSink,
    NoteDecision,
    NoteDeliveries,
    Operation,
    ReplayDeadLetters,
    ResendEvents,
)
from perdure.stores.rules.changes import wanted
from perdure.stores.rules.questions import ManyRows, Query, Steps

# The listeners of sinks: of one that wants anything, and of one that wants steps, which are many.
OUTBOX, OUTBOX_STEPS = "outbox", "outbox.steps"
FOR_EVER = 2**63 - 1


class Emitted(NamedTuple):
    """The event that an operation is: its type, by the value of a field if there is one, and where the rest stands.

    `statement` is that of the single call whose rows have these fields in their places. Without a number it is the
    last one of the run, without a time that of its end.
    """

    statement: str
    types: Mapping[str, str]
    by: str | None = None
    number: str | int | None = None
    at: str | None = None
    step: str | None = None


class Ended(NamedTuple):
    """What a rule answers that has ended runs which its operation does not name.

    Sinks are told of these with all else of the batch: one of them may have started in it.
    """

    run_ids: Sequence[str | bytes]
    at: int
    answer: Answer | None


_STARTS = Emitted("", {"": STARTED}, number=1, at="created_at")
_ENDS = {status.value: type for status, type in ENDED.items()}

EMITTED: dict[type[Operation], Emitted] = {
    operations.InsertRun: _STARTS._replace(statement="insert_runs"),
    operations.InsertRichRun: _STARTS._replace(statement="insert_rich_runs"),
    operations.AppendEvent: Emitted(
        "append_events", STEPS | TASK_STEPS, by="kind", number="seq", at="at", step="place"
    ),
    operations.ParkRun: Emitted("park_runs", {Status.SUSPENDED.value: SUSPENDED}, by="status", at="at"),
    operations.HoldRun: Emitted("hold_runs", {"": HELD}, at="at"),
    operations.PauseRun: Emitted("", {"": HELD}, at="at"),
    operations.CloseFreeRun: Emitted("", _ENDS, by="status"),
    operations.EndRun: Emitted("end_runs", _ENDS, by="status", number="last_seq"),
}
# What the run's row says where the event is true; a pause may have become a message.
STATUS_OF: dict[str, str] = {type: status for status, type in _ENDS.items()}
STATUS_OF |= {HELD: Status.SUSPENDED.value, SUSPENDED: Status.SUSPENDED.value}


def event_row(type: str, run_id: str, number: int | None, at: int | None, step: str | None = None) -> tuple[Any, ...]:
    """What is given of an event; all else is taken from the row of its run."""
    return (run_id, BITS[type], type, number, at, step, STATUS_OF.get(type))


def _rows(applied: Iterable[Any]) -> list[tuple[Any, ...]]:
    rows = []
    for operation in applied:
        emitted = EMITTED.get(type(operation))
        if emitted is None:
            continue
        key = "" if emitted.by is None else str(getattr(operation, emitted.by))
        if key in TASK_STEPS and not operation.body.startswith(TASK_BODY):
            # The end of a child that is a run of its own.
            continue
        if (name := emitted.types.get(key)) is not None:
            number = getattr(operation, emitted.number) if isinstance(emitted.number, str) else emitted.number
            at = None if emitted.at is None else getattr(operation, emitted.at)
            step = None if emitted.step is None else getattr(operation, emitted.step)
            rows.append(event_row(name, operation.run_id, number, at, step))
    return rows


def queue_applied(
    applied: Sequence[Any],
    appended: Sequence[Any],
    decisions: Sequence[Any],
    ended: Sequence[Ended],
    now: int,
    listeners: Sequence[Any],
) -> Steps[None]:
    """Queue the events of a batch: first of starts, then of steps, then all others, as each run has them."""
    names = wanted(listeners, now)
    if OUTBOX not in names:
        return
    rows = sorted(_rows(applied), key=_is_later)
    if OUTBOX_STEPS in names and appended:
        first = next((place for place, row in enumerate(rows) if _is_later(row)), len(rows))
        rows[first:first] = _rows(appended)
    rows += ended_rows(run_id for each in ended for run_id in each.run_ids)
    skipped = [skipped_row(each) for each in decisions if is_skipped(each)]
    count = 0
    if rows:
        count += (yield ManyRows("queue_events", rows)).count
    if skipped:
        count += (yield ManyRows("queue_decisions", skipped)).count
    if count:
        yield Query("mark_behind", {"now": now, "count": count})


def _is_later(row: tuple[Any, ...]) -> bool:
    return bool(row[2] != STARTED)


def is_skipped(decision: NoteDecision) -> bool:
    """Whether no run starts for a time."""
    return decision.kind.startswith("skipped")


def skipped_row(decision: NoteDecision) -> tuple[Any, ...]:
    told = {"kind": decision.kind, "time": decision.time, "count": decision.times}
    body = msgspec.json.encode(told).decode()
    return (decision.schedule_id, BITS[SKIPPED], SKIPPED, decision.number, decision.time, body)


def queue_unnamed(rows: Sequence[tuple[Any, ...]], now: int) -> Steps[None]:
    """Queue events of runs that were changed by an operation which does not name them."""
    if rows and (listeners := (yield Query("listeners", {})).rows) and OUTBOX in wanted(listeners, now):
        yield ManyRows("queue_events", rows)


def ended_rows(run_ids: Iterable[str | bytes]) -> list[tuple[Any, ...]]:
    """Events of runs that were stopped, however: the row of each says which of the two is true."""
    names = [run_id for run_id in run_ids if isinstance(run_id, str)]
    types = (ENDED[Status.CANCELLED], ENDED[Status.TERMINATED])
    return [event_row(type, run_id, None, None) for run_id in names for type in types]


# Sinks


def insert_sink(sink: InsertSink) -> Steps[Answer | None]:
    """Make a sink; from the commit on, whoever looks sees it. Moved when its name is taken."""
    yield from _listen(sink.types)
    return None if (yield Query("insert_sink", sink._asdict())).count == 1 else Moved()


def _listen(types: int) -> Steps[None]:
    for name in (OUTBOX, OUTBOX_STEPS) if types & STEP_BITS else (OUTBOX,):
        yield Query("listen", {"name": name, "until": FOR_EVER, "now": 0})


def move_sink(move: MoveSink) -> Steps[Answer | None]:
    """Change a sink; Moved when it is not as it was read."""
    yield Query("reach_wishes", {})
    if (yield Query("move_sink", move._asdict())).count != 1:
        return Moved()
    yield from _listen(move.types)
    yield Query("forget_wishes", {"steps": STEP_BITS})
    return None


def delete_sink(delete: DeleteSink) -> Steps[Answer]:
    """Forget a sink, and some of what waits for it; answers whether there is more."""
    yield Query("reach_wishes", {})
    yield Query("delete_sink", {"sink_id": delete.sink_id})
    yield Query("forget_wishes", {"steps": STEP_BITS})
    events = (yield Query("purge_outbox", delete._asdict())).count
    letters = (yield Query("purge_letters", delete._asdict())).count
    return Applied(max(events, letters) >= delete.limit)


# Deliveries


def note_deliveries(note: NoteDeliveries) -> Steps[Answer | None]:
    """Note what became of events that were sent; Moved when another worker has the duty by now."""
    duty = {"namespace": note.namespace, "name": note.duty, "worker_id": note.worker_id}
    if (yield Query("reach_duty", duty)).count != 1:
        return Moved()
    of_sink = {"sink_id": note.sink_id}
    dead = [failed for failed in note.failed if failed.next_at is None]
    for failed in note.failed:
        name = "retry_event" if failed.next_at is not None else "bury_event"
        yield Query(name, of_sink | failed._asdict() | ({"at": note.at} if failed.next_at is None else {}))
    if note.delivered or dead:
        numbers = [*note.delivered, *(failed.n for failed in dead)]
        count = (yield Query("delete_delivered", of_sink | {"numbers": numbers})).count
        yield Query("count_delivered", of_sink | {"count": max(count - len(dead), 0)})
    if note.behind:
        yield Query("set_behind", of_sink | {"numbers": list(note.behind)})
    if note.runs:
        yield Query("free_next", of_sink | {"runs": list(note.runs)})
    return None


def end_gap(gap: EndGap) -> Steps[Answer | None]:
    """Tell a sink events again, and first that some are missing."""
    if (yield Query("end_gap", {"sink_id": gap.sink_id})).count != 1:
        return Moved()
    yield Query("queue_event", gap._asdict())
    return None


def replay_dead_letters(replay: ReplayDeadLetters) -> Steps[Answer]:
    """Put dead letters back, behind all that waits; answers how many."""
    numbers = replay.numbers
    if numbers is None:
        asked = {"sink_id": replay.sink_id, "after": -1, "limit": replay.limit}
        numbers = tuple(row[0] for row in (yield Query("dead_letters", asked)).rows)
    named = {"sink_id": replay.sink_id, "numbers": list(numbers)}
    revived = (yield Query("revive_letters", named)).count if numbers else 0
    if revived:
        yield Query("delete_letters", named)
    return Applied(revived)


def resend_events(resend: ResendEvents) -> Steps[Answer]:
    """Make the events of some runs anew; answers the last of them, None after the last, and how many events."""
    found = (yield Query("sink_of_id", {"sink_id": resend.sink_id})).dicts()
    if not found:
        return Applied((None, 0))
    sink = found[0]
    asked = resend._asdict() | {"namespace": sink["namespace"]}
    runs = [run_id for (run_id,) in (yield Query("runs_to_resend", asked)).rows]
    if not runs:
        return Applied((None, 0))
    workflows = msgspec.json.decode(str(sink["workflows"])) if sink["workflows"] is not None else None
    chosen = {
        "sink_id": resend.sink_id,
        "runs": runs,
        "since": resend.since,
        "until": resend.until,
        "types": [type for type, bit in BITS.items() if int(str(sink["types"])) & bit],
        "all_workflows": workflows is None,
        "workflows": workflows or [],
    }
    count = (yield Query("resend_events", chosen)).count
    return Applied((runs[-1] if len(runs) == resend.limit else None, count))
