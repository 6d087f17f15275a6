"""Starting under an id that may be taken: the kernel's rule, and what follows from it.

In:   a request to start, what its policy says, any engine.
Out:  a new run, or the one that has the id; IdConflict.
"""

import contextlib
from collections.abc import Mapping
from functools import partial
from typing import TypeAlias

import msgspec

from perdure import codec
from perdure.engine.ports import Client, Engine, OwnedRun, Reader, StartRequest
from perdure.errors import BadOption, IdConflict, RunClosed
from perdure.kernel.conflict import GiveIt, OnConflict, Refuse, Resolution, helpful, resolve
from perdure.stores.records import RunRow

LONGEST_SHOWN = 100

# The defaults of a workflow's parameters by name, as JSON.
Defaults: TypeAlias = Mapping[str, bytes | msgspec.Raw]


async def start(
    engine: Engine,
    namespace: str,
    request: StartRequest,
    policy: OnConflict,
    defaults: Defaults,
    within: object = None,
) -> RunRow | OwnedRun:
    """Start a run as its policy says: a new one, or the one that has the id; IdConflict.

    Arguments are compared with the defaults in the place of those that are missing. Within a connection
    of the caller's, everything happens in the transaction that is in.
    """
    client = engine.client
    begin = client.start if within is None else partial(client.start_within, connection=within)
    found = await begin(namespace, request)
    while isinstance(found, RunRow):
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
    first = found
    # A run that continues others was started with the arguments of the first of them.
    while first.continued_from is not None:
        first = await reader.read(first.namespace, first.continued_from)
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
    return None if _same(found.input, request.input, defaults) else "it has other arguments"


def _same(one: str, other: str, defaults: Defaults) -> bool:
    return one == other or _canonical(one, defaults) == _canonical(other, defaults)


def _canonical(text: str, defaults: Defaults) -> bytes:
    """JSON in one way of writing it; a number is not a truth value, nor a whole one a float.

    Runs that were started by an older version were recorded without the defaults.
    """
    given = codec.load(text.encode())
    if defaults and isinstance(given, dict):
        given = {name: codec.load(bytes(value)) for name, value in defaults.items()} | given
    return msgspec.json.encode(given, order="sorted")


def _digest(workflow: str, input: str) -> str:
    shown = input if len(input) <= LONGEST_SHOWN else input[:LONGEST_SHOWN] + "..."
    return f"{workflow}({shown})"
