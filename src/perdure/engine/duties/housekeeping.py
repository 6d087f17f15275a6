"""The duty `housekeeping`: what is not kept any more is deleted, a bite at a time."""

from perdure.engine.committer import Committer, refusal_of
from perdure.stores.answers import Applied
from perdure.stores.operations import ForgetKeys
from perdure.stores.port import Store

# So many rows go in one transaction.
BITE = 1000
# Between two looks lies so much: nothing is the worse for a row that stays a little longer.
PAUSE_MS = 60_000


class HousekeepingDuty:
    """Deletes idempotency keys whose time is over; those of all namespaces, for some have no worker."""

    name = "housekeeping"

    def __init__(self, store: Store, committer: Committer) -> None:
        self._store = store
        self._committer = committer
        self._looked_at: int | None = None

    async def due_at(self, namespace: str, now: int) -> int | None:
        """When the first key is over, but not at once after the last look; None when there is none."""
        oldest = await self._store.reads.keys.oldest()
        if oldest is None or self._looked_at is None:
            return oldest
        return max(oldest, self._looked_at + PAUSE_MS)

    async def tick(self, namespace: str, now: int, *, is_first: bool) -> None:
        """Delete what is over by now."""
        self._looked_at = now
        has_more = True
        while has_more:
            answer = await self._committer.apply(ForgetKeys(now, BITE))
            if not isinstance(answer, Applied):
                raise refusal_of(answer, self._store.url)
            has_more = answer.value is True
