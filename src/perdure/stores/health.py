"""The health of any database: what is asked of the tables, whatever keeps them."""

from typing import NamedTuple

import msgspec

from perdure.kernel.schedules import ScheduledCall


class WorkerSeen(msgspec.Struct, frozen=True):
    """A worker's row; `is_alive` is None when its lock cannot be asked."""

    worker_id: str
    namespace: str
    lease_until: int
    queues: tuple[str, ...]
    host: str
    pid: int
    started_at: int
    runs: int
    is_alive: bool | None
    # What it has code for; None for one that does not say.
    workflows: tuple[str, ...] | None = None


class Due(msgspec.Struct, frozen=True):
    """Runs that a worker should have taken: where they lie, what code they want, how many, and how many for long."""

    namespace: str
    queue: str
    workflow: str
    runs: int
    late: int = 0


class DutySeen(msgspec.Struct, frozen=True):
    """A duty's row, and whether its holder has one."""

    namespace: str
    name: str
    holder: str | None
    since: int
    last_ok_at: int
    last_error: str | None
    is_held: bool


class ScheduleSeen(msgspec.Struct, frozen=True):
    """A schedule that has times ahead: its source is `code` or `api`; what it starts, and on which queue."""

    namespace: str
    name: str
    source: str
    workflow: str
    queue: str


class _ScheduleBody(msgspec.Struct, frozen=True):
    call: ScheduledCall


def schedule_seen(namespace: object, name: object, source: object, body: str | bytes) -> ScheduleSeen | None:
    """A schedule's row; None for one that is none, which the worker that decides schedules tells of."""
    try:
        call = msgspec.json.decode(body, type=_ScheduleBody).call
        fields = {"namespace": namespace, "name": name, "source": source}
        return msgspec.convert(fields | {"workflow": call.workflow, "queue": call.queue}, ScheduleSeen)
    except (msgspec.MsgspecError, TypeError):
        return None


class Contents(msgspec.Struct, frozen=True, kw_only=True):
    """What the tables hold; not read from tables that are not as we know them."""

    is_read: bool = False
    workers: tuple[WorkerSeen, ...] = ()
    open_runs: int = 0
    held_runs: int = 0
    due_runs: int = 0
    due_since: int | None = None
    due: tuple[Due, ...] = ()
    duties: tuple[DutySeen, ...] = ()
    schedules: tuple[ScheduleSeen, ...] = ()
    last_written_at: int = 0
    # Open runs that were written by a clock that was ahead: some ids, and how many there are.
    written_ahead: tuple[str, ...] = ()
    written_ahead_runs: int = 0


# What a person can ask with a statement of their own.
READABLE = (
    "one statement that reads is taken, over v_runs, v_events, v_messages, v_attempts, v_workers, v_queues or tables"
)
NO_ROWS = "this statement finds no rows, whatever is there; give a select"


class StatementRows(NamedTuple):
    """What a statement of a person has found, and whether there is more than was wanted."""

    columns: tuple[str, ...]
    rows: list[tuple[object, ...]]
    has_more: bool
