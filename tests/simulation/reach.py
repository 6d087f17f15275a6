"""What a run of the simulator must come by, or it proves nothing: every fault, every answer, every way out."""

from collections.abc import Mapping

from tests.simulation.simulator import Fault

# So many seeds must reach everything.
ENOUGH = 1000

# Beside the times that come one after the other.
TOO = ("triggered", "backfilled")

WANTED = (
    *(fault.name for fault in Fault),
    *("Committed", "Failed", "Unknown", "Fenced"),
    *("answer Taken", "answer Moved", "answer Closed"),
    *("died at a commit", "died in a loop", "opening failed", "closed", "read failed"),
    *("takeover", "recovery of the own runs", "parked", "not parked", "mismatch", "poison", "quarantine", "a rest"),
    *("RunClosed", "IdConflict", "RunCancelled", "RunTerminated", "RunTimedOut", "RunFailed"),
    *("a request was answered", "AlreadyResolved", "NotAnswered"),
    *("given the run that has the id", "took over the id"),
    *("a child told its parent", "a generation followed", "a cancelled run", "an attempt failed", "a zombie computed"),
    *("a task completed", "a task failed for good", "a task was tried again", "a task's worker was lost"),
    *("undone, FAILED", "undone, CANCELLED", "undone, TIMED_OUT", "left undone"),
    *("a task was cancelled with its caller", "a task was called off", "a task was too slow"),
    *("an only attempt was lost", "a task was not begun in time", "told to stop where it waited for that"),
    *("a retry", "a fork", "paused", "all were asked", "RunNotHeld"),
    *("runs were followed", "a subscriber went on after its cursor"),
    "a delayed signal was received",
    *("a duty was taken", "a duty was taken over"),
    *("a start under a key", "answer KeptKey"),
    *("a sink was made", "a sink did not take an event", "an event was taken twice", "a dead letter", "a gap was told"),
    *(f"a time was {kind}" for kind in ("started", "caught_up", "queued", "skipped_overlap", "skipped_paused", *TOO)),
    *("Undone", "struck with the rows of an activity"),
)

# Where there are servers.
WANTED_OVER_HTTP = (
    *("answer Stale", "a request was lost", "the answer to a request was lost", "a request arrived twice"),
    *("a request arrived when it was given up", "a stream was cut", "FREEZE_AT over HTTP", "takeover", "parked"),
)


def missed(reached: Mapping[str, int]) -> list[str]:
    """What was never come by."""
    return [what for what in WANTED if not reached.get(what)]
