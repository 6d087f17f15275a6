"""Children: how they are stopped when their parent ends, or no longer waits for them."""

from perdure.stores.answers import Answer, Applied, StoppedChild
from perdure.stores.operations import StopChildren
from perdure.stores.rules.changes import log_changes
from perdure.stores.rules.outbox import Ended
from perdure.stores.rules.questions import Query, Steps

# No place comes after this one.
LAST_PLACE = chr(0x10FFFF)


def stop_children(stop: StopChildren) -> Steps[Answer | Ended | None]:
    """Close the children whose code was never called, and ask the others to stop."""
    places = stop._asdict() | {"last_place": LAST_PLACE}
    closed = (yield Query("close_unbegun_children", places)).rows
    asked = [StoppedChild(*row) for row in (yield Query("stop_children", places)).rows]
    run_ids = [child.run_id for child in asked]
    if asked:
        yield Query("wake_children", {"run_ids": run_ids, "at": stop.at, "reason": stop.reason})
    yield from log_changes([*run_ids, *(run_id for (run_id,) in closed)], stop.at)
    answer = Applied(asked) if asked else None
    return Ended([run_id for (run_id,) in closed], stop.at, answer) if closed else answer
