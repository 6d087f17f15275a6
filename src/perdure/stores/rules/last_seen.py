"""Where a run was when its worker was lost, read in the transaction that puts it into quarantine."""

from perdure.kernel.quarantine import LastEvent, Tried, places_of, where_it_was
from perdure.stores.rules.questions import Query, Steps


def whereabouts(run_id: str) -> Steps[str]:
    """What the run was doing, in words."""
    run = {"run_id": run_id}
    ((waiting,),) = (yield Query("noted_waiting", run)).rows
    tried = [Tried(*row) for row in (yield Query("tried", run)).rows]
    found = yield Query("ended_places", run | {"places": places_of(waiting, tried)})
    ended = {place for (place,) in found.rows}
    last = (yield Query("last_recorded", run)).first
    return where_it_was(waiting, tried, ended, None if last is None else LastEvent(*last))
