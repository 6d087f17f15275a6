"""Starts: how a request to start becomes a run and the operations that insert it.

In:   requests, of callers and of parents.
Out:  runs, given under the tenure of now, and operations for the committer.
"""

from typing import Any

import msgspec

from perdure.engine.arrivals import Arrivals
from perdure.engine.leasing.lease import Lease
from perdure.engine.ports import OwnedRun, StartRequest
from perdure.engine.stopping import Deadlines
from perdure.ids import Ids, stamp_of
from perdure.kernel.traits import PLAIN
from perdure.stores.operations import InsertRichRun, InsertRun, Operation, SupersedeRun

# Makes a named tuple without the detour through its Python constructor.
_row: Any = tuple.__new__


class Starts:
    """Makes runs; what comes for one that will live here is kept from the moment it may be on disk."""

    def __init__(self, ids: Ids, lease: Lease, arrivals: Arrivals, deadlines: Deadlines) -> None:
        self._ids = ids
        self._lease = lease
        self._arrivals = arrivals
        self._deadlines = deadlines

    def new_run(self, namespace: str, request: StartRequest, now: int) -> OwnedRun:
        """The run that the request asks for."""
        ids = self._ids
        if request.is_plain:
            run_id = ids.run_id(now)
            owned = OwnedRun(run_id, run_id, request.workflow, request.input, ids.seed(), now)
        else:
            run_id = request.run_id or self.run_id_after(now, request.supersedes)
            seed = ids.seed() if request.seed is None else request.seed
            owned = OwnedRun(run_id, request.workflow_id or run_id, request.workflow, request.input, seed, now)
            _dress(owned, request, now)
        owned.arguments = request.arguments
        owned.tenure = self._lease.tenure
        if namespace != "main":
            owned.namespace = namespace
        return owned

    def run_id_after(self, now: int, predecessor: str | None) -> str:
        """A new run id, above that of the run before it under the same workflow_id: lists are ordered by them."""
        return self._ids.run_id(now if predecessor is None else max(now, stamp_of(predecessor) + 1))

    def insert(self, request: StartRequest, owned: OwnedRun, *, hosted: bool) -> tuple[Operation, ...]:
        """The operations that insert a run; messages for one that will live here are kept until it does."""
        if hosted:
            self._arrivals.early[owned.run_id] = []
        if owned.traits.close_at is not None:
            self._deadlines.expect(owned.traits.close_at)
        return insertion(request, owned, self._lease.worker_id if hosted else None)


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
