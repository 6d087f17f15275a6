"""Planted bugs of servers and of those who work over them; they are looked for where there are some."""

from typing import Any

from perdure.engine.remote.runs import StoreRemoteRuns
from perdure.http import idempotency
from perdure.http.handlers.changes import ChangeFrames
from perdure.stores.answers import APPLIED
from perdure.stores.rules.questions import Found
from tests.simulation.memory import worker_statements
from tests.simulation.memory.statements import rows_of
from tests.simulation.memory.view import Steps, View
from tests.simulation.mutants import MUTANTS, Patch, changed, mutant

_before = {*MUTANTS}


@mutant
def _() -> list[Patch]:
    """Fence of the batch instead of the group."""

    def group_fence(view: View, *, worker_id: str, epoch: int) -> Steps[Found]:
        yield from ()
        return rows_of([(epoch,)] if view.workers.get(worker_id) is not None else [])

    sql, name, text = changed("check_fences", "and epoch = fence.column2", "and epoch > 0")
    return [
        (sql, name, text.replace("select worker_id, epoch", "select worker_id, fence.column2")),
        (worker_statements, "group_fence", group_fence),
    ]


@mutant
def _() -> list[Patch]:
    """Server's answer to a worker before its commit."""

    async def write(_: StoreRemoteRuns, moves: Any) -> None:
        for move in moves:
            if move.operations:
                move.ask()
                move.settle(APPLIED)

    return [(StoreRemoteRuns, "_write", write)]


@mutant
def _() -> list[Patch]:
    """Request that arrives twice done twice."""
    return [(idempotency, "HEADER", "another-key")]


@mutant
def _() -> list[Patch]:
    """Frame lost between stored and live where a stream goes on."""

    async def next_frame(self: ChangeFrames) -> Any:
        if "last-event-id" in self._call.headers and not self._last:
            await real_next(self)
        return await real_next(self)

    real_next = ChangeFrames.__anext__
    return [(ChangeFrames, "__anext__", next_frame)]


REMOTE = MUTANTS.keys() - _before
