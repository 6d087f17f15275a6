"""Activities that a worker does not wait for any longer when it stops.

In:   the runs it has, once its grace is over.
Out:  one warning that names them: they are done again, by whoever has their runs next.
"""

import logging
from collections.abc import Iterable

from perdure.worker.calls.pending import PendingActivity
from perdure.worker.live_run import LiveRun

log = logging.getLogger("perdure.worker")

MOST_NAMED = 5


def tell_unfinished(runs: Iterable[LiveRun], grace_ms: int) -> None:
    """Warn of the activities that are still under way, if any are."""
    left = [name for live in runs for name in _under_way(live)]
    if not left:
        return
    more = f" and {len(left) - MOST_NAMED:,} more" if len(left) > MOST_NAMED else ""
    log.warning(
        "%s did not finish within %g s and will run again when a worker has the run: %s%s",
        "1 activity" if len(left) == 1 else f"{len(left):,} activities",
        grace_ms / 1000,
        ", ".join(left[:MOST_NAMED]),
        more,
        extra={"event": "activities_unfinished", "activities": len(left)},
    )


def _under_way(live: LiveRun) -> list[str]:
    calls = (live.program.pending.get(place) for place, attempt in live.running.items() if not attempt.is_over)
    return [
        f"{call.activity.name} of run {live.owned.workflow_id!r}" for call in calls if isinstance(call, PendingActivity)
    ]
