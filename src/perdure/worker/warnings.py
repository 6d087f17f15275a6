"""Warnings that a worker gives people about its runs.

In:   live runs, and what living workers have code for, by queue.
Out:  one warning of the activities that did not finish before the worker stopped; and one for each queue that no worker
      works and each name that no worker has there, for which nothing else would tell, until some worker does.
"""

import logging
from collections.abc import Iterable

from perdure.engine.ports import Engine
from perdure.worker.live_run import LiveRun

log = logging.getLogger("perdure.worker")

MOST_NAMED = 5
# Beyond so many events people are told of a history.
LONG_HISTORY = 10_000


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
    names = [call.activity_here for call in calls if call is not None]
    return [f"{name} of run {live.owned.workflow_id!r}" for name in names if name is not None]


def tell_long_history(live: LiveRun) -> None:
    """Warn of a run whose history has grown long since it came here: every replay of it takes longer."""
    live.is_long = True
    log.warning(
        "run %r has a history of %s events, all of which a worker that takes it over replays; let its code "
        "`continue_as_new` when `info().history_length` is large",
        live.owned.workflow_id,
        f"{live.owned.state.seq:,}",
        extra={"event": "history_long", "run_id": live.run_id, "events": live.owned.state.seq},
    )


class Unworked:
    """The queues, and the names, that were told of."""

    def __init__(self, engine: Engine) -> None:
        self._claimer = engine.claimer
        self._told: set[str] = set()

    def look_at(self, live: LiveRun) -> None:
        """Warn when the run waits for an activity or a child that no worker alive could run."""
        for call in live.program.pending.values():
            needed = call.needs(live) if call.is_waiting else None
            if needed is None:
                continue
            if needed.activity is not None:
                self._check(needed.activity, needed.queue, live)
            self._check_code(needed.what, needed.workflow, needed.queue, live)

    def _check_code(self, what: str, workflow: str, queue: str, live: LiveRun) -> None:
        key = f"{queue}/{workflow}"
        if self._claimer.has_code(live.owned.namespace, queue, workflow):
            self._told.discard(key)
        elif self._claimer.is_worked(live.owned.namespace, queue) and key not in self._told:
            self._told.add(key)
            log.warning(
                "%s of run %r waits on the queue %s for code that no living worker of it has, %s; start one that does",
                what,
                live.owned.workflow_id,
                queue,
                workflow,
                extra={"event": "code_missing", "workflow": workflow, "queue": queue},
            )

    def _check(self, activity: str, queue: str, live: LiveRun) -> None:
        if self._claimer.is_worked(live.owned.namespace, queue):
            self._told.discard(queue)
        elif queue not in self._told:
            self._told.add(queue)
            log.warning(
                "the activity %s of run %r waits on the queue %s, which no living worker works; start one with "
                "`perdure worker MODULE --queue %s` or Perdure(url, queues=(%r,))",
                activity,
                live.owned.workflow_id,
                queue,
                queue,
                queue,
                extra={"event": "queue_unworked", "queue": queue},
            )
