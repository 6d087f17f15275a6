"""Activities on queues and children for which nobody has the code: told once, for nothing else would tell.

In:   runs that have been quiet, and what living workers have code for, by queue.
Out:  one warning for each queue that nobody works, and each name that nobody has there, until somebody does.
"""

import logging

from perdure.engine.ports import Engine
from perdure.worker.calls.pending import PendingChild, PendingTask
from perdure.worker.live_run import LiveRun

log = logging.getLogger("perdure.worker")


class Unworked:
    """The queues, and the names, that were told of."""

    def __init__(self, engine: Engine) -> None:
        self._claimer = engine.claimer
        self._told: set[str] = set()

    def look_at(self, live: LiveRun) -> None:
        """Warn when the run waits for an activity or a child that no worker alive could run."""
        for call in live.program.pending.values():
            if isinstance(call, PendingTask) and call.is_waiting:
                queue = call.activity.settings.queue or ""
                self._check(call.activity.name, queue, live)
                self._check_code(f"the activity {call.activity.name}", call.workflow.name, queue, live)
            elif isinstance(call, PendingChild) and call.is_waiting:
                queue = call.workflow.settings.queue or live.owned.queue
                self._check_code(f"the child {call.child_id}", call.workflow.name, queue, live)

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
