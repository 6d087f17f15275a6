"""How a request to start becomes a run and the operations that insert it."""

from typing import Any

import msgspec

from perdure.engine.ports import OwnedRun, StartRequest
from perdure.ids import Ids, stamp_of
from perdure.kernel.traits import PLAIN
from perdure.stores.operations import InsertRichRun, InsertRun, Operation, SupersedeRun

# Makes a named tuple without the detour through its Python constructor.
_row: Any = tuple.__new__


def new_run(ids: Ids, request: StartRequest, now: int, namespace: str, tenure: object) -> OwnedRun:
    """The run that the request asks for."""
    if request.is_plain:
        run_id = ids.run_id(now)
        owned = OwnedRun(run_id, run_id, request.workflow, request.input, ids.seed(), now)
    else:
        run_id = request.run_id or run_id_after(ids, now, request.supersedes)
        seed = ids.seed() if request.seed is None else request.seed
        owned = OwnedRun(run_id, request.workflow_id or run_id, request.workflow, request.input, seed, now)
        _dress(owned, request, now)
    owned.arguments = request.arguments
    owned.tenure = tenure
    if namespace != "main":
        owned.namespace = namespace
    return owned


def _dress(owned: OwnedRun, request: StartRequest, now: int) -> None:
    """Give a run what it was asked for with."""
    owned.queue = request.queue
    owned.priority = request.priority
    if request.traits is not PLAIN or request.delay_ms:
        traits, begins_at = request.traits, now + request.delay_ms
        owned.traits = msgspec.structs.replace(
            traits,
            delayed_until=begins_at if request.delay_ms else None,
            close_at=None if traits.timeout_ms is None else begins_at + traits.timeout_ms,
        )


def run_id_after(ids: Ids, now: int, predecessor: str | None) -> str:
    """A new run id, above that of the run before it under the same workflow_id: lists are ordered by them."""
    return ids.run_id(now if predecessor is None else max(now, stamp_of(predecessor) + 1))


def insertion(request: StartRequest, owned: OwnedRun, worker_id: str | None) -> tuple[Operation, ...]:
    """The operations that insert a run: owned by a worker, or ripe when its time comes."""
    traits = owned.traits
    fields = (
        owned.run_id,
        owned.namespace,
        owned.workflow_id,
        owned.workflow,
        request.queue,
        "PENDING" if worker_id is None else "RUNNING",
        worker_id,
        (traits.delayed_until or owned.created_at) if worker_id is None else None,
        request.priority,
        request.input,
        owned.seed,
        owned.created_at,
    )
    if traits is PLAIN:
        insert: Operation = _row(InsertRun, fields)
    else:
        insert = InsertRichRun(
            *fields,
            traits.parent_id,
            traits.parent_place,
            traits.on_parent_close,
            traits.entity_id,
            traits.correlation_id,
            traits.attributes,
            traits.timeout_ms,
            traits.delayed_until,
            traits.close_at,
            traits.continued_from,
        )
    return (insert,) if request.supersedes is None else (SupersedeRun(request.supersedes, None), insert)
