"""The heartbeat: renews the lease from a thread of its own, but only while the event loop turns.

In:   a function that renews, and one to call when that is refused.
Out:  renewals; the place in the log where the loop stands still.
"""

import asyncio
import logging
import sys
import threading
import traceback
from collections.abc import Callable

from perdure.clock import elapsed
from perdure.threads import tell_loop

log = logging.getLogger("perdure.engine")

BEAT_SECONDS = 0.25
STALL_SECONDS = 1.0
GIVE_UP_SECONDS = 60.0
# A renewal may wait for a lock that a frozen process holds; a caller that closes the engine does not.
STOP_SECONDS = 2.0


class Heartbeat:
    """Calls `renew` as long as the loop answers; `on_lost` on the loop when renewal was refused."""

    # Seconds that pass, whatever the wall clock is set to.
    now = staticmethod(elapsed)

    def __init__(self, renew: Callable[[], bool], on_lost: Callable[[], None]) -> None:
        self._renew = renew
        self._on_lost = on_lost
        self._loop = asyncio.get_running_loop()
        self._loop_thread = threading.get_ident()
        self._stop = threading.Event()
        self._ended: asyncio.Future[None] = self._loop.create_future()
        self._turned_at = self.now()
        self._has_warned = False
        self._has_failed = False
        self._turn()
        self.begin()

    def begin(self) -> None:
        """Beat from now on, in a thread."""
        threading.Thread(target=self._run, name="perdure-heartbeat", daemon=True).start()

    def cancel(self) -> None:
        """Beat no more."""
        self._alarm.cancel()
        self._stop.set()

    async def ended(self) -> None:
        """Until the thread has ended, unless it waits for a lock it cannot get; it writes nothing then."""
        await asyncio.wait([self._ended], timeout=STOP_SECONDS)

    def _turn(self) -> None:
        self._turned_at = self.now()
        self._has_warned = False
        self._alarm = self._loop.call_later(BEAT_SECONDS, self._turn)

    def _run(self) -> None:
        while not self._stop.wait(BEAT_SECONDS):
            self.tick()
        tell_loop(self._ended)

    def tick(self) -> None:
        """Beat once, unless the loop has stood still for too long; tell where it stands."""
        stalled = self.now() - self._turned_at
        if stalled > BEAT_SECONDS + STALL_SECONDS and not self._has_warned:
            self._warn(stalled)
        if stalled < GIVE_UP_SECONDS:
            self._beat()

    def _beat(self) -> None:
        try:
            is_held = self._renew()
        except Exception as error:  # noqa: BLE001 - the heart must go on beating
            if not self._has_failed:
                log.warning("the lease could not be renewed: %s", error, extra={"event": "renewal_failed"})
            self._has_failed = True
            return
        self._has_failed = False
        if not is_held and not self._stop.is_set():
            self._stop.set()
            self._loop.call_soon_threadsafe(self._on_lost)

    def _warn(self, stalled: float) -> None:
        self._has_warned = True
        frame = sys._current_frames().get(self._loop_thread)
        stack = "".join(traceback.format_stack(frame)) if frame else "unknown"
        log.warning(
            "the event loop has not turned for %.1f s; something blocks it here:\n%s",
            stalled,
            stack,
            extra={"event": "loop_stalled"},
        )
