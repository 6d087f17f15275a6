"""The duty `housekeeping`: what is not kept any more is deleted, a bite at a time."""

from perdure.engine.committer import Committer, refusal_of
from perdure.stores.answers import Applied
from perdure.stores.operations import ForgetKeys
from perdure.stores.port import Store

# So many rows go in one transaction.
BITE = 1000
# So often it is looked whether there is something to delete: nothing is the worse for a row that stays a little longer.
LOOK_MS = 600_000


class HousekeepingDuty:
    """Deletes idempotency keys whose time is over; those of all namespaces, for some have no worker."""

    name = "housekeeping"

    def __init__(self, store: Store, committer: Committer) -> None:
        self._store = store
        self._committer = committer
        self._look_at = 0

    async def due_at(self, namespace: str, now: int) -> int | None:
        """Since when a key is over; else when to look again, for nobody tells of new ones."""
        if now < self._look_at:
            return self._look_at
        self._look_at = now + LOOK_MS
        oldest = await self._store.reads.keys.oldest()
        return self._look_at if oldest is None or oldest > now else oldest

    async def tick(self, namespace: str, now: int, *, is_first: bool) -> None:
        """Delete what is over by now."""
        # Where it fails, it is tried again soon.
        look_at, self._look_at = self._look_at, 0
        has_more = True
        while has_more:
            answer = await self._committer.apply(ForgetKeys(now, BITE))
            if not isinstance(answer, Applied):
                raise refusal_of(answer, self._store.url)
            has_more = answer.value is True
        self._look_at = look_at
