"""The duty `schedules`: times that are due are decided, and what waits starts when others have ended."""

from perdure.engine.arrivals import Arrivals
from perdure.engine.schedules.deciding import Deciding
from perdure.stores.port import Store

# So many schedules are decided at once, and as many in one transaction as the committer takes.
BITE = 2000
# While something waits it is looked so often whether the runs that it waits for have ended.
WAITING_MS = 1000


class ScheduleDuty:
    """Looks at schedules that are due, and at those of which something waits."""

    name = "schedules"
    counted_as = "scheduled"

    def __init__(self, store: Store, arrivals: Arrivals, deciding: Deciding) -> None:
        self._reads = store.reads.schedules
        self._arrivals = arrivals
        self._deciding = deciding
        self._looked_at = 0

    async def due_at(self, namespace: str, now: int) -> int | None:
        """When the next time is due, or the next look at what waits."""
        next_at, waits = await self._reads.next(namespace)
        look_at = self._looked_at + WAITING_MS if waits else None
        return min((at for at in (next_at, look_at) if at is not None), default=None)

    async def tick(self, namespace: str, now: int, *, is_first: bool) -> int:
        """Decide what is due; then start what waits for runs that have ended. Answers of how many something was due."""
        decided = 0
        while due := await self._reads.due(namespace, now, BITE):
            if not await self._deciding.decide_all(due, now):
                break
            decided += len(due)
        after = ""
        # The holder before may have died before it asked old runs to stop: at first, all that wait are looked at.
        while waiting := await self._reads.waiting(namespace, after, BITE, all=is_first):
            await self._deciding.decide_all(waiting, now)
            after = waiting[-1].name
        self._looked_at = now
        self._arrivals.look_around()
        return decided
