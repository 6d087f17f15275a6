"""Holding runs: those that cannot go on are stopped, visibly, until a person acts.

In:   live runs, and what is wrong with them.
Out:  held runs, with a report; nothing of their code is left in memory.
"""

import logging
import shlex

import msgspec

from perdure.engine.held import tell_unreadable
from perdure.engine.ports import Engine, Hold
from perdure.errors import RunUnreadable
from perdure.stores import rows
from perdure.worker.calls.call import Mismatch
from perdure.worker.live_run import LiveRun, LiveRuns

log = logging.getLogger("perdure.worker")

REMEDY = (
    "bring back the code that wrote this history, or tell old runs from new with patched(), and restart the worker; "
    "or give the run up with `perdure terminate {id}`"
)


class Holding:
    """Holds live runs."""

    def __init__(self, engine: Engine, runs: LiveRuns) -> None:
        self._owner = engine.owner
        self._runs = runs

    def mismatch(self, live: LiveRun, mismatch: Mismatch) -> None:
        """The code does not fit the history: stop the run, with both sides in the report."""
        log.error(
            "run %r of %s is held: %s; bring back the code that wrote its history and restart (`perdure show %s`)",
            live.owned.workflow_id,
            live.workflow.name,
            mismatch,
            live.owned.workflow_id,
            extra={"event": "run_held", "run_id": live.run_id, "reason": "mismatch"},
        )
        self._hold(live, Hold("mismatch", _report(live, mismatch)))

    def broken(self, run_id: str, trouble: str) -> None:
        """The database will not take this run's event: stop the run, visibly."""
        live = self._runs.by_id.get(run_id)
        if live is None:
            return
        log.error(
            "run %r is held: %s", live.owned.workflow_id, trouble, extra={"event": "run_held", "run_id": live.run_id}
        )
        remedy = f"when the cause is mended, `perdure resume {live.owned.workflow_id}`"
        self._hold(live, Hold("quarantine", msgspec.json.encode({"trouble": trouble, "remedy": remedy}).decode()))

    def unreadable(self, error: RunUnreadable) -> None:
        """What came for this run cannot be read: stop the run, for nothing behind it may be taken before it."""
        live = self._runs.by_id.get(error.run_id)
        # One that is being let go of is read again, by its next owner or when it stays after all.
        if live is None or (live.is_leaving and not live.is_replaying):
            return
        id = live.owned.workflow_id
        tell_unreadable(RunUnreadable(error.url, error.run_id, id, error.trouble))
        self._hold(live, Hold("quarantine", rows.held_report(error.trouble, id)))

    def _hold(self, live: LiveRun, how: Hold) -> None:
        live.is_leaving = True
        self._owner.release(live.owned, how, lambda _: None)
        self._runs.evict(live)


def _report(live: LiveRun, mismatch: Mismatch) -> str:
    event = mismatch.event
    return msgspec.json.encode(
        {
            "trouble": mismatch.trouble,
            "workflow": live.workflow.name,
            "history": None if event is None else {"seq": event.seq, "kind": event.kind, "place": event.place},
            "code_waits_at": mismatch.waiting,
            "remedy": REMEDY.format(id=shlex.quote(live.owned.workflow_id)),
        }
    ).decode()
