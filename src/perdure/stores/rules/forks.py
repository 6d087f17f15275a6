"""Forks: how a run gets the past of another one, copied inside the database.

In:   which events are kept, and what else is known of the new run.
Out:  questions to the database; Missing when the other run is not there, or has continued.
"""

from perdure.stores.answers import Answer, Missing
from perdure.stores.operations import ForkRun
from perdure.stores.rules.changes import log_changes
from perdure.stores.rules.questions import ManyRows, Query, Steps
from perdure.stores.rules.runs import append_events

# What a retry is called, in contrast to a fork.
RETRY = "retry"


def fork_run(fork: ForkRun) -> Steps[Answer | None]:
    """Copy what is kept; the same once more, because its answer was lost, changes nothing."""
    if (yield Query("note_fork", fork._asdict())).count == 0:
        return None
    ends = {"run_id": fork.from_run_id, "to_run_id": fork.run_id}
    if (yield Query("note_forked_to", ends)).count == 0:
        return Missing()
    # The new run is logged with its insertion; of when this is none of its times tells.
    yield from log_changes([fork.from_run_id], 0)
    yield Query("copy_messages", ends)
    if fork.kind == RETRY and fork.begun_at is not None:
        yield Query("copy_begun", ends)
    if fork.kept:
        rows = [(fork.from_run_id, fork.run_id, *kept) for kept in fork.kept]
        yield ManyRows("copy_payloads", rows)
        yield ManyRows("copy_events", rows)
        yield ManyRows("retake_messages", rows)
    yield Query("keep_known", ends)
    if fork.given:
        yield from append_events(list(fork.given), {})
    yield Query("count_messages", {"to_run_id": fork.run_id})
    return None
