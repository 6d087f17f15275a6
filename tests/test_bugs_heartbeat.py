"""Bugs of others, about being alive: a busy worker is not dead, and one that stands still must not look alive.

The numbers in the docstrings are those of docs/bugs-of-others.md.
"""

import itertools
import threading

import pytest

from perdure.engine.leasing import heartbeat
from perdure.engine.leasing.heartbeat import GIVE_UP_SECONDS, Heartbeat


class Heart:
    """Counts renewals; `beats` is set when there were some more."""

    def __init__(self) -> None:
        self.renewals = 0
        self.beats = threading.Event()
        self._wanted = 0

    def renew(self) -> bool:
        self.renewals += 1
        if self.renewals >= self._wanted:
            self.beats.set()
        return True

    def want(self, more: int) -> None:
        self._wanted = self.renewals + more
        self.beats.clear()


async def test_a_busy_loop_does_not_starve_the_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    """R66: a long computation kept the renewal from its turn; the run was marked as crashed while it worked."""
    monkeypatch.setattr(heartbeat, "BEAT_SECONDS", 0.001)
    heart = Heart()
    beating = Heartbeat(heart.renew, lambda: None)
    try:
        heart.want(5)
        # The loop does not turn meanwhile: this waits for another thread.
        assert heart.beats.wait(20)
    finally:
        beating.cancel()
        await beating.ended()


async def test_a_loop_that_stands_still_for_long_loses_its_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    """R41: it took work in, never did any of it, and counted as active: alive is who gets on."""
    monkeypatch.setattr(heartbeat, "BEAT_SECONDS", 0.001)
    looks, is_over = itertools.count(), threading.Event()
    now = 0.0

    def elapsed() -> float:
        if now and next(looks) > 5:
            is_over.set()
        return now

    monkeypatch.setattr(Heartbeat, "now", staticmethod(elapsed))
    heart = Heart()
    beating = Heartbeat(heart.renew, lambda: None)
    try:
        heart.want(1)
        assert heart.beats.wait(20)
        now = GIVE_UP_SECONDS + 1
        heart.want(1)
        assert is_over.wait(20)
        # One renewal may have been under way when the loop was last seen to turn.
        before = heart.renewals
        is_over.clear()
        assert is_over.wait(20)
        assert heart.renewals == before
    finally:
        beating.cancel()
        await beating.ended()
