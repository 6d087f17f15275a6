"""Shutdown: a process that is told to end hands its runs back first, so that nobody is blamed for its end.

In:   Perdures that work, as they are opened and closed; SIGTERM and SIGHUP that nobody handles; the program's exit.
Out:  runs that others go on with at once; then the process ends, by the same signal.
Only the main thread may set handlers: it has to open one of them, itself or over a sync bridge. A handler of
the program's own, set before or after, is left alone, and so is a signal that is ignored.
"""

import _thread
import asyncio
import atexit
import concurrent.futures
import contextlib
import logging
import os
import signal
import threading
from collections.abc import Callable, Coroutine, Iterable
from types import FrameType
from typing import Any, NamedTuple

log = logging.getLogger("perdure.app")

SIGNALS = (signal.SIGTERM, signal.SIGHUP)
# Python itself raises KeyboardInterrupt for SIGINT; only who has told it not to may want it caught here.
EVER_CAUGHT = (*SIGNALS, signal.SIGINT)
# So long it may take to hand runs back; then others take them over.
PATIENCE_SECONDS = 5.0
# When a signal without a handler has not ended the process by then, it never will.
DEAF_SECONDS = 1.0


class Working(NamedTuple):
    """A Perdure that works: its loop, and what lets go of all its runs."""

    loop: asyncio.AbstractEventLoop
    hand_back: Callable[[], Coroutine[Any, Any, None]]


class Shutdown:
    """The Perdures of this process that work."""

    def __init__(self) -> None:
        self._open: dict[object, Working] = {}
        self._pid = 0
        # One and the same object, to be known again.
        self._handler = self._on_signal
        self._is_ending = False

    def watch(self, app: object, hand_back: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """A Perdure was opened, on the running loop."""
        if os.getpid() != self._pid:
            # Whatever a process had open that this one was forked from is not its own.
            self._open.clear()
            self._pid = os.getpid()
            atexit.register(self._at_exit)
        self._open[app] = Working(asyncio.get_running_loop(), hand_back)
        self.catch()

    def forget(self, app: object) -> None:
        """A Perdure was closed."""
        self._open.pop(app, None)
        self.release()

    async def until_ended(self) -> None:
        """Wait for the end of the process when a signal ends it: nobody is to see more of it than that."""
        if self._is_ending and os.getpid() == self._pid:
            await asyncio.Event().wait()

    def catch(self, numbers: Iterable[int] = SIGNALS) -> None:
        """Handle those of these signals that nobody handles, if this is the main thread."""
        if threading.current_thread() is threading.main_thread():
            self._replace(signal.SIG_DFL, self._handler, numbers)

    def release(self) -> None:
        """Handle no signals any more when nothing is open."""
        if not self._open and threading.current_thread() is threading.main_thread():
            self._replace(self._handler, signal.SIG_DFL)

    def _replace(self, found: object, wanted: "signal._HANDLER", numbers: Iterable[int] = EVER_CAUGHT) -> None:
        for number in numbers:
            if signal.getsignal(number) == found:
                # An interpreter inside another one has a main thread, but no signals.
                with contextlib.suppress(ValueError):
                    signal.signal(number, wanted)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        # A second one ends the process on the spot.
        self._replace(self._handler, signal.SIG_DFL)
        if not self._open or os.getpid() != self._pid:
            os.kill(os.getpid(), number)
            return
        self._is_ending = True
        # In a thread, so that an end is put to whatever the loops do; without the locks of `threading`, one of which
        # the code that was struck may hold.
        _thread.start_new_thread(self._end_by, (number,))

    def _end_by(self, number: int) -> None:
        try:
            log.info("told to end by %s", signal.Signals(number).name, extra={"event": "told_to_end"})
            self._hand_back()
        finally:
            os.kill(os.getpid(), number)
            # The first process of a container does not die of a signal that it has no handler for.
            threading.Event().wait(DEAF_SECONDS)
            os._exit(128 + number)

    def _at_exit(self) -> None:
        """The program ends, and something was left open: over a sync bridge, or on a loop that was stopped."""
        if os.getpid() != self._pid:
            return
        for each in list(self._open.values()):
            if not each.loop.is_running() and not each.loop.is_closed():
                with contextlib.suppress(TimeoutError):
                    each.loop.run_until_complete(asyncio.wait_for(each.hand_back(), PATIENCE_SECONDS))
        self._hand_back()

    def _hand_back(self) -> None:
        """Let all that are open on loops in other threads hand back what they have."""
        works = [
            asyncio.run_coroutine_threadsafe(each.hand_back(), each.loop)
            for each in list(self._open.values())
            if each.loop.is_running()
        ]
        _, late = concurrent.futures.wait(works, PATIENCE_SECONDS)
        if late:
            log.warning(
                "runs could not be handed back within %g s; they are taken over as those of a process that died",
                PATIENCE_SECONDS,
                extra={"event": "not_handed_back"},
            )


shutdown = Shutdown()
