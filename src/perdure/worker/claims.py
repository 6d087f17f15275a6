"""Claims: taking ripe runs whenever there may be some and there is room."""

import asyncio
import logging
from collections.abc import Callable

from perdure.clock import Alarm, pause
from perdure.engine.outages import Outage
from perdure.engine.ports import Engine
from perdure.errors import PerdureError, StoreUnavailable

log = logging.getLogger("perdure.worker")

# How many ripe runs are claimed at once.
CLAIM = 200
# When to look again for what is ripe and could not be claimed: others just take it, or a person holds it for long.
CLAIM_AGAIN_MS, SELDOM_AGAIN_MS = 10, 640
FAILED_AGAIN_MS = 1000
# How long a worker that stops waits for a claim under way; while nothing can be written there is no end of it.
STOP_MS = 2000


class Claims:
    """Claims runs one bite after another.

    `room` says how many more fit, `suspects` how many of them may be suspects, `names` what there is code for.
    """

    def __init__(
        self,
        engine: Engine,
        namespace: str,
        queues: tuple[str, ...],
        room: Callable[[], int],
        suspects: Callable[[], int],
        names: Callable[[], tuple[str, ...]],
    ) -> None:
        self._claimer = engine.claimer
        self._clock = engine.clock
        self._namespace = namespace
        self._queues = queues
        self._room = room
        self._suspects = suspects
        self._names = names
        self._task: asyncio.Task[None] | None = None
        self._alarm: Alarm | None = None
        self._alarm_at = 0
        self._again_ms = CLAIM_AGAIN_MS
        self._is_stopped = False
        self._outage = Outage(
            engine.clock, "claim_failed", "claiming failed, will try again", "runs can be claimed again"
        )
        self.is_wanted = False
        # How many runs this has taken.
        self.claimed = 0

    @property
    def is_idle(self) -> bool:
        return self._task is None

    def look(self) -> None:
        """There may be ripe runs: claim them, if there is room."""
        if self._is_stopped:
            return
        self.is_wanted = True
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._claim())

    def abandon(self) -> None:
        """Claim nothing more, not even what is under way."""
        self._is_stopped = True
        if self._task is not None:
            self._task.cancel()

    async def close(self) -> None:
        """Claim nothing more. Whatever a claim takes that is not waited for any longer, others take over."""
        self._is_stopped = True
        self._wake_at(None)
        task = self._task
        if task is not None:
            patience = asyncio.ensure_future(pause(self._clock, STOP_MS))
            await asyncio.wait((task, patience), return_when=asyncio.FIRST_COMPLETED)
            task.cancel()
            patience.cancel()

    async def _claim(self) -> None:
        try:
            while self.is_wanted and not self._is_stopped:
                room = self._room()
                if room <= 0:
                    return
                self.is_wanted = False
                names, suspects = self._names(), self._suspects()
                limit = min(room, CLAIM)
                claimed = await self._claimer.claim(self._namespace, self._queues, names, limit, suspects)
                if claimed:
                    self.claimed += len(claimed)
                    self.is_wanted = True
                    self._again_ms = CLAIM_AGAIN_MS
                else:
                    # Those that may not be claimed now are no reason to look again.
                    is_any = suspects > 0
                    at = await self._claimer.next_wake(self._namespace, self._queues, names, suspects=is_any)
                    self._wake_at(at)
            self._outage.is_over()
        except StoreUnavailable as error:
            self._outage.fails(error)
            self._wake_at(self._clock.now() + FAILED_AGAIN_MS)
        except PerdureError:
            log.warning("claiming failed, will try again", exc_info=True, extra={"event": "claim_failed"})
            self._wake_at(self._clock.now() + FAILED_AGAIN_MS)
        finally:
            self._task = None

    def _wake_at(self, at: int | None) -> None:
        now = self._clock.now()
        if at is not None and at <= now:
            # One that is ripe already could not be claimed just now; look again in a moment, and each time later.
            at = now + self._again_ms
            self._again_ms = min(2 * self._again_ms, SELDOM_AGAIN_MS)
        else:
            self._again_ms = CLAIM_AGAIN_MS
        if self._alarm is not None:
            if at == self._alarm_at:
                # Set anew at every look, called-off alarms would stay in memory until their time has come.
                return
            self._alarm.cancel()
            self._alarm = None
        if at is not None and not self._is_stopped:
            self._alarm_at = at
            self._alarm = self._clock.call_at(at, self._ring)

    def _ring(self) -> None:
        self._alarm = None
        self.look()
