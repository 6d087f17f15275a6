"""Recovery: a worker that lost its lease, or does not know, gets a new epoch and its runs back.

In:   a batch that was fenced or whose outcome is unknown; a renewal that was refused.
Out:  a new tenure: every run is dropped, and those that are still ours are loaded again.
"""

import logging

from perdure.clock import Clock
from perdure.engine.arrivals import READ_AGAIN_MS
from perdure.engine.background import Background
from perdure.engine.committer import Committer
from perdure.engine.leasing.claims import StoreClaimer
from perdure.engine.leasing.heartbeat import Heartbeat
from perdure.engine.leasing.lease import Lease
from perdure.engine.outages import Outage
from perdure.errors import StoreUnavailable
from perdure.stores.answers import Outcome, Unknown

log = logging.getLogger("perdure.engine")


class Recovery:
    """Keeps the lease renewed, and begins anew when it is lost; `kind` is the heart that beats, if any does."""

    def __init__(
        self,
        url: str,
        committer: Committer,
        clock: Clock,
        lease: Lease,
        claimer: StoreClaimer,
        background: Background,
        kind: type[Heartbeat] | None,
    ) -> None:
        self._url = url
        self._committer = committer
        self._clock = clock
        self._lease = lease
        self._claimer = claimer
        self._background = background
        self._kind = kind
        self.heartbeat: Heartbeat | None = None
        committer.on_lost = self.lost

    def begin(self) -> None:
        """Renew the lease from now on."""
        if self._kind is not None:
            self.heartbeat = self._kind(self._lease.renew, self.refused)

    def cancel(self) -> None:
        """Renew the lease no more."""
        if self.heartbeat is not None:
            self.heartbeat.cancel()

    async def close(self) -> None:
        """The same, until no renewal is under way."""
        self.cancel()
        if self.heartbeat is not None:
            await self.heartbeat.ended()

    def renew(self) -> None:
        """Renew the lease where no thread does it: under a clock that does not tick by itself."""
        if self._lease.host is None or self.heartbeat is not None:
            return
        try:
            is_held = self._lease.renew()
        except StoreUnavailable as error:
            log.warning("the lease could not be renewed: %s", error, extra={"event": "renewal_failed"})
        else:
            if not is_held:
                self.refused()

    def refused(self) -> None:
        """A renewal was refused: what is owned is in doubt."""
        self._committer.stop_for(Unknown(StoreUnavailable(self._url, "the lease was not renewed")))

    def lost(self, _: Outcome) -> None:
        """The lease is lost, or that is not known: nothing is ours until there is a new epoch."""
        self._lease.begin_tenure()
        if self._lease.host is None:
            self._committer.resume(None, 0)
            return
        self._lease.host.evict_all()
        self._background.spawn(self._recover())

    async def _recover(self) -> None:
        """Get a new epoch, whatever it takes; then bring back the runs that are still ours."""
        self.cancel()
        outage = Outage(
            self._clock, "recovery_failed", "no new epoch yet, will try again", "the worker has a new epoch"
        )
        while True:
            try:
                still_ours = await self._lease.recover()
                break
            except StoreUnavailable as error:
                outage.fails(error)
                self._committer.refuse_waiting(error)
                await self._background.stall(READ_AGAIN_MS)
        outage.is_over()
        self.begin()
        if still_ours:
            await self._claimer.load(still_ours)
