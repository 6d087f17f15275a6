"""Queues on which activities wait and that nobody works: told once, for nothing else would tell.

In:   runs that have been quiet, and which queues living workers work.
Out:  one warning for each queue, until somebody works it.
"""

import logging

from perdure.engine.port import Engine
from perdure.worker.live import LiveRun
from perdure.worker.pending import PendingTask

log = logging.getLogger("perdure.worker")


class Unworked:
    """The queues that were told of."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._told: set[str] = set()

    def look_at(self, live: LiveRun) -> None:
        """Warn when the run waits for an activity that no worker alive could run."""
        for call in live.program.pending.values():
            if isinstance(call, PendingTask) and call.is_waiting:
                self._check(call.activity.name, call.activity.settings.queue or "", live.owned.workflow_id)

    def _check(self, activity: str, queue: str, id: str) -> None:
        if self._engine.is_worked(queue):
            self._told.discard(queue)
        elif queue not in self._told:
            self._told.add(queue)
            log.warning(
                "the activity %s of run %r waits on the queue %s, which no living worker works; start one with "
                "`perdure worker MODULE --queue %s` or Perdure(url, queues=(%r,))",
                activity,
                id,
                queue,
                queue,
                queue,
                extra={"event": "queue_unworked", "queue": queue},
            )
