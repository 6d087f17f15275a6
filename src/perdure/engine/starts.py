"""Starts: how a request becomes a run and the operations that insert it; what follows when its id is taken.

In:   requests of callers and of parents; what the policy of a workflow says.
Out:  runs, given under the tenure of now, and operations for the committer; or the run that has the id, or IdConflict.
`start` works over any engine, by the kernel's rule.
"""

import contextlib
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeAlias

import msgspec

from perdure import codec
from perdure.engine.arrivals import Arrivals
from perdure.engine.leasing.lease import Lease
from perdure.engine.ports import Client, Engine, OwnedRun, Reader, StartedRun, StartRequest
from perdure.engine.stopping import Deadlines
from perdure.errors import BadOption, IdConflict, RunClosed
from perdure.ids import Ids, stamp_of
from perdure.kernel.conflict import GiveIt, OnConflict, Refuse, Resolution, helpful, resolve
from perdure.kernel.status import Status
from perdure.kernel.traits import PLAIN
from perdure.stores.operations import InsertRichRun, InsertRun, Operation, SupersedeRun
from perdure.stores.records import RunRow

# Makes a named tuple without the detour through its Python constructor.
_row: Any = tuple.__new__

LONGEST_SHOWN = 100

# The defaults of a workflow's parameters by name, as JSON.
Defaults: TypeAlias = Mapping[str, bytes | msgspec.Raw]


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
    traits = request.traits
    if traits.timeout_ms is traits.close_at is traits.delayed_until is None and not request.delay_ms:
        owned.traits = traits
    else:
        begins_at = now + request.delay_ms
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
            traits.schedule,
            traits.scheduled_for,
        )
    return (insert,) if request.supersedes is None else (SupersedeRun(request.supersedes, None), insert)


def row_of(owned: OwnedRun) -> RunRow:
    """The row of a run as it was inserted for whoever claims it."""
    traits = owned.traits
    return RunRow(
        run_id=owned.run_id,
        namespace=owned.namespace,
        workflow_id=owned.workflow_id,
        workflow=owned.workflow,
        queue=owned.queue,
        status=Status.PENDING,
        held=None,
        held_report=None,
        owner=None,
        wake_at=traits.delayed_until or owned.created_at,
        waiting=None,
        messages=0,
        priority=owned.priority,
        entity_id=traits.entity_id,
        correlation_id=traits.correlation_id,
        attributes=traits.attributes,
        step=None,
        input=owned.input,
        outcome=None,
        seed=owned.seed,
        last_seq=None,
        created_at=owned.created_at,
        updated_at=owned.created_at,
        closed_at=None,
        parent_id=traits.parent_id,
        parent_place=traits.parent_place,
        on_parent_close=traits.on_parent_close,
        initial_attributes=traits.attributes,
        timeout_ms=traits.timeout_ms,
        delayed_until=traits.delayed_until,
        close_at=traits.close_at,
        continued_from=traits.continued_from,
        schedule=traits.schedule,
        scheduled_for=traits.scheduled_for,
    )


# Under an id that may be taken


async def start(
    engine: Engine,
    namespace: str,
    request: StartRequest,
    policy: OnConflict,
    defaults: Defaults,
    within: object = None,
    may_see: Callable[[RunRow], bool] = lambda _: True,
) -> StartedRun:
    """Start a run as its policy says: a new one, or the one that has the id; IdConflict.

    Arguments are compared with the defaults in the place of those that are missing. Within a connection
    of the caller's, everything happens in the transaction that is in. A run that the caller may not see
    keeps its id, and the refusal tells nothing of it.
    """
    if engine.once is not None:
        begin_again = partial(start, namespace=namespace, request=request, policy=policy, defaults=defaults)
        return await engine.once.start(request, within, partial(begin_again, may_see=may_see))
    client = engine.client
    begin = client.start if within is None else partial(client.start_within, connection=within)
    found = await begin(namespace, request)
    while isinstance(found, RunRow):
        if not may_see(found):
            raise IdConflict(found.workflow_id, "a run of another entity", request.workflow, "the id is taken")
        resolution = await resolution_of(engine.reader, found, request, policy, defaults)
        if isinstance(resolution, GiveIt):
            return found
        if within is not None and found.closed_at is None:
            resolution = _without_terminating(found, resolution)
        found = await begin(namespace, await superseding(client, request, found, resolution))
    return found


def _without_terminating(found: RunRow, resolution: Resolution) -> Resolution:
    """What the rule says inside the caller's transaction, where an open run cannot be ended."""
    if not isinstance(resolution, Refuse):
        raise BadOption(
            f"run {found.workflow_id!r} is open, and cannot be terminated inside your transaction; end it first"
        )
    return Refuse(resolution.why, tuple(each for each in resolution.allowed if each != OnConflict.TERMINATE))


async def resolution_of(
    reader: Reader, found: RunRow, request: StartRequest, policy: OnConflict, defaults: Defaults
) -> Resolution:
    """What the rule says of this run and this request."""
    # A run that continues others was started with the arguments of the first of them.
    first = await reader.first(found)
    difference, is_closed = _difference(first, request, defaults), found.closed_at is not None
    resolution = resolve(policy, difference=difference, is_closed=is_closed)
    if isinstance(resolution, Refuse):
        return Refuse(resolution.why, helpful(difference=difference, is_closed=is_closed))
    return resolution


async def superseding(client: Client, request: StartRequest, found: RunRow, resolution: Resolution) -> StartRequest:
    """The request that takes over the id from the run that was found; IdConflict when the rule is against it."""
    if isinstance(resolution, Refuse):
        raise IdConflict(
            found.workflow_id,
            f"{_digest(found.workflow, found.input)} ({found.status})",
            _digest(request.workflow, request.input),
            resolution.why,
            tuple(each.value for each in resolution.allowed),
        )
    if found.closed_at is None:
        # One that ends by itself meanwhile makes way as well.
        with contextlib.suppress(RunClosed):
            reason = "another run was started under its id"
            await client.terminate(found.namespace, found.run_id, found.workflow_id, reason)
    return msgspec.structs.replace(request, supersedes=found.run_id)


def _difference(found: RunRow, request: StartRequest, defaults: Defaults) -> str | None:
    if found.workflow != request.workflow:
        return "it is another workflow"
    if found.input == request.input:
        return None
    has, wants = _filled(found.input, defaults), _filled(request.input, defaults)
    if _canonical(has) == _canonical(wants):
        return None
    return _changed_defaults(has, wants, defaults) or "it has other arguments"


def _changed_defaults(has: object, wants: object, defaults: Defaults) -> str | None:
    """The arguments that differ, if each of those wanted is a default of the code as it is now."""
    if not isinstance(has, dict) or not isinstance(wants, dict) or has.keys() != wants.keys():
        return None
    names = [name for name in has if _canonical(has[name]) != _canonical(wants[name])]
    if any(
        name not in defaults or _canonical(wants[name]) != _canonical(codec.load(bytes(defaults[name])))
        for name in names
    ):
        return None
    return (
        f"it differs only in {', '.join(names)}, where this start has a default of the code as it is now, and the run "
        "what it was started with; to mean that run, give what it has"
    )


def _filled(text: str, defaults: Defaults) -> object:
    """Arguments with the defaults; runs that were started by an older version were recorded without."""
    given = codec.load(text.encode())
    if defaults and isinstance(given, dict):
        given = {name: codec.load(bytes(value)) for name, value in defaults.items()} | given
    return given


def _canonical(value: object) -> bytes:
    """JSON in one way of writing it; a number is not a truth value, nor a whole one a float."""
    return msgspec.json.encode(value, order="sorted")


def _digest(workflow: str, input: str) -> str:
    shown = input if len(input) <= LONGEST_SHOWN else input[:LONGEST_SHOWN] + "..."
    return f"{workflow}({shown})"
