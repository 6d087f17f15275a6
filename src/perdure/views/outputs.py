"""What runs show and publish, as people and programs outside see it.

In:   the engine and a run.
Out:  its snapshot; the values of a stream in their order, those to come as well.
"""

from collections.abc import AsyncGenerator
from dataclasses import dataclass
from datetime import datetime
from typing import Generic, TypeVar

import msgspec

from perdure.codec import ValueType
from perdure.engine.endings import ending_of
from perdure.engine.ports import Engine
from perdure.errors import QueryNotFound, RunUnreadable
from perdure.kernel.snapshots import ShownValues
from perdure.kernel.status import Status
from perdure.views.run import View, moment

T_co = TypeVar("T_co", covariant=True)

VALUES_PAGE = 500


@dataclass(frozen=True, slots=True)
class Snapshot(View):
    """What a run shows of itself by `expose`: values by name, and of those that failed the error.

    `seq` is the event it is of, 0 while the run has shown nothing; `size` is in bytes.
    """

    seq: int
    at: datetime
    values: dict[str, object]
    errors: dict[str, str]
    size: int = 0


@dataclass(frozen=True, slots=True)
class StreamItem(View, Generic[T_co]):
    """A value of a stream: the n-th; `attempt` is that of the activity that has published it."""

    n: int
    value: T_co
    attempt: int
    at: datetime


async def snapshot_of(engine: Engine, namespace: str, run_id: str) -> Snapshot:
    """What a run shows by now."""
    found = await engine.outputs.snapshot(namespace, run_id)
    if found is None:
        row = await engine.reader.read(namespace, run_id)
        return Snapshot(0, moment(row.created_at), {}, {})
    try:
        shown = msgspec.json.decode(found.body, type=ShownValues)
    except msgspec.MsgspecError as error:
        raise RunUnreadable(engine.url, run_id, run_id, f"its snapshot cannot be read: {error}") from None
    values = {name: msgspec.json.decode(value) for name, value in shown.values.items()}
    return Snapshot(found.seq, moment(found.at), values, shown.errors, len(found.body.encode()))


def value_in(snapshot: Snapshot, id: str, name: str) -> object:
    """The value that is shown under a name; QueryNotFound."""
    if name not in snapshot.values:
        raise QueryNotFound(id, name, tuple(snapshot.values), snapshot.errors.get(name))
    return snapshot.values[name]


async def stream_of(
    engine: Engine, namespace: str, run_id: str, name: str, kind: ValueType, after: int
) -> AsyncGenerator[StreamItem[object], None]:
    """The values of a stream after a number, until the run has ended, and those that continue it."""
    row = await engine.outputs.holder(namespace, run_id, name, after)
    where = f"a value of the stream {name!r}"
    while True:
        page = await engine.outputs.stream_page(row.run_id, name, after, VALUES_PAGE)
        for found in page:
            yield StreamItem(found.n, kind.restore(found.body.encode(), where), found.attempt, moment(found.at))
            after = found.n
        if len(page) == VALUES_PAGE:
            continue
        if row.closed_at is None:
            await engine.outputs.wait_for_more(row.run_id, name, after)
            # Looked at before the next page: all that was published is there when the run has ended.
            row = await engine.reader.read(namespace, row.run_id)
        elif row.status == Status.CONTINUED:
            row = await engine.reader.read(namespace, str(ending_of(row).next_run_id))
        else:
            return
