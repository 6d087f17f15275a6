"""New runs with the past of others: retry, fork."""

from collections.abc import Callable, Mapping
from typing import Protocol, TypeAlias

import msgspec

from perdure.engine.ports.announcements import AnnouncedWorkflow
from perdure.engine.ports.owned_run import OwnedRun
from perdure.stores.records import RunRow


class ForkRequest(msgspec.Struct, frozen=True):
    """A fork: the last event that it keeps, or the first place that it does not; what else is other than in the run.

    Without an id it takes that of the run. `input` are arguments by name in the place of those of the run, `results`
    those of calls by place, as JSON.
    """

    at: int | str
    workflow_id: str | None = None
    input: Mapping[str, msgspec.Raw] = {}
    results: Mapping[str, msgspec.Raw] = {}
    reason: str | None = None


# The arguments of a run with others in their place, checked by the code or by what was announced; BadArguments.
MergeInput: TypeAlias = Callable[[RunRow, Mapping[str, msgspec.Raw], AnnouncedWorkflow | None], str]


class Forker(Protocol):
    """Makes runs that have the past of others, which stay as they are; `id` is the workflow_id that errors name."""

    async def retry(self, namespace: str, run_id: str, id: str, reason: str | None) -> RunRow | OwnedRun:
        """Run again what failed, or go on where a run was stopped; a run has one retry, however often it is asked for.

        RunOpen; RunClosed when it is COMPLETED; IdConflict when a newer run has the id.
        """

    async def fork(
        self, namespace: str, run_id: str, id: str, request: ForkRequest, merge: MergeInput
    ) -> RunRow | OwnedRun:
        """Go on from a point; BadForkPoint, RunOpen, IdConflict; RunClosed when the run goes on as another one."""
