"""Outages: trouble that goes on is told at once, then ever more rarely, and once when it is over.

In:   each failed try, and the first one that does well.
Out:  lines in the log, few enough to be read.
"""

import logging

from perdure.clock import Clock

log = logging.getLogger("perdure.engine")

FIRST_PAUSE_MS, LAST_PAUSE_MS = 60_000, 3_600_000
# So many kinds of trouble are told at once in one outage; a text that changes with every try is not news for ever.
# A server that goes down says farewell first, and refuses connections a moment later: that is one thing to be told.
SETTLED_MS = 1000
MOST_KINDS = 5


class Outage:
    """One kind of trouble, from the first failed try to the first that does well."""

    def __init__(self, clock: Clock, event: str, trouble: str, end: str) -> None:
        self._clock = clock
        self._event = event
        self._trouble = trouble
        self._end = end
        self._since = 0
        self._pause_ms = FIRST_PAUSE_MS
        self._next_at = 0
        self._told: set[str] = set()

    def fails(self, error: Exception) -> None:
        """Another try has failed; tell it if that is new, or was not said for long."""
        now, text = self._clock.monotonic(), str(error)
        if not self._told:
            self._since = now
            self._pause_ms = FIRST_PAUSE_MS
        elif now >= self._next_at:
            self._pause_ms = min(self._pause_ms * 2, LAST_PAUSE_MS)
        elif text in self._told or len(self._told) >= MOST_KINDS or now < self._since + SETTLED_MS:
            return
        self._next_at = now + self._pause_ms
        self._told.add(text)
        lasting = f", for {_span(now - self._since)} by now" if now > self._since else ""
        log.warning("%s%s: %s", self._trouble, lasting, error, extra={"event": self._event})

    def is_over(self) -> None:
        """A try has done well."""
        if self._told:
            self._told.clear()
            lasted = self._clock.monotonic() - self._since
            log.warning("%s, after %s", self._end, _span(lasted), extra={"event": f"{self._event}_over"})


def _span(ms: int) -> str:
    for name, length in (("h", 3_600_000), ("min", 60_000), ("s", 1000)):
        if ms >= length:
            return f"{ms / length:.3g} {name}"
    return f"{ms} ms"
