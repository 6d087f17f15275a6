"""Bugs that the simulator found in the engine, planted again: what it found once, it must be able to find again.

A seed is only a number: when programs or faults are drawn in another way, it is another schedule, and says nothing of
what it once found. What is kept of a bug is a test of its own, and its like here.
"""

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec

from perdure.clock import SystemClock
from perdure.engine import ownership
from perdure.engine.client import StoreClient
from perdure.engine.committer import Dropped
from perdure.errors import StoreError
from perdure.kernel.status import Status
from perdure.worker import activities, effects
from perdure.worker.calls import activity
from perdure.worker.calls.activity import ActivityCall
from tests.simulation.mutants import Patch, changed, mended


@mended
def _() -> list[Patch]:
    """Signal held back by a delay that is over."""
    return [changed("count_posted", "begun_at is null and delayed_until", "delayed_until")]


@mended
def _() -> list[Patch]:
    """Timers that do not see a clock set."""

    def call_at(self: SystemClock, at: int, callback: Callable[[], None]) -> Any:
        return asyncio.get_running_loop().call_later(min(max(0, at + 1 - self.now()) / 1000, 3600.0), callback)

    return [(SystemClock, "call_at", call_at)]


@mended
def _() -> list[Patch]:
    """Engine time that stays ahead of a clock put right."""

    def now(self: Any) -> int:
        ahead = self.__dict__.setdefault("ahead_ns", 0)
        behind = self._last_ns - self._wall_ns() - ahead
        self.ahead_ns = ahead + max(0, behind)
        self._last_ns = self._wall_ns() + self.ahead_ns
        return int(self._last_ns // 1_000_000)

    return [(SystemClock, "now", now), (SystemClock, "latest", now)]


@mended
def _() -> list[Patch]:
    """Activities out of time when a clock is set forward."""

    def begin(self: Any, clock: Any, threads: int) -> None:
        real(self, _WallClock(clock), threads)

    real = activities.ActivityRunner.__init__
    return [(activities.ActivityRunner, "__init__", begin)]


class _WallClock:
    """A clock that measures durations by the time of day."""

    def __init__(self, clock: SystemClock) -> None:
        self.now = self.latest = self.monotonic = clock.now
        self.call_at = clock.call_at
        self.is_over = clock.is_over


@mended
def _() -> list[Patch]:
    """Attempt recorded after the end of its run."""

    def record_attempt(self: Any, owned: Any, attempt: Any, then: Callable[[], None]) -> None:
        state, owned.state = owned.state, msgspec.structs.replace(owned.state, status=Status.RUNNING)
        try:
            real(self, owned, attempt, then)
        finally:
            owned.state = state

    real = ownership.Ownership.record_attempt
    return [(ownership.Ownership, "record_attempt", record_attempt)]


@mended
def _() -> list[Patch]:
    """Attempt forgotten that falls due while its run is being parked."""
    return [(effects.Effects, "try_again", lambda *_: None)]


@mended
def _() -> list[Patch]:
    """Error for nobody when an engine closed on a broken disk."""

    def raise_refusal(self: Any, answer: Any, namespace: str, id: str) -> None:
        if isinstance(answer, Dropped):
            raise StoreError(self._store.url, f"the change was refused: {answer}")
        real(self, answer, namespace, id)

    real = StoreClient._raise_refusal
    return [(StoreClient, "_raise_refusal", raise_refusal)]


@mended
def _() -> list[Patch]:
    """Attempt recorded after its run was handed back."""

    def activity_failed(call: Any, live: Any, *args: Any) -> None:
        if not live.is_leaving:
            real_failed(call, live, *args)
            return
        leaving.append(live)
        live.is_leaving = False
        try:
            real_failed(call, live, *args)
        finally:
            live.is_leaving = True
            leaving.remove(live)

    def record_failure(call: Any, live: Any, *args: Any) -> None:
        # One that is the last was never written.
        live.is_leaving = live.is_leaving or live in leaving
        real_record(call, live, *args)

    leaving: list[Any] = []
    real_failed, real_record = activity.try_again, activity.record_failure
    return [
        (activity, "try_again", activity_failed),
        (activity, "record_failure", record_failure),
    ]


@mended
def _() -> list[Patch]:
    """Attempt begun while its run is being parked."""

    def ring(self: ActivityCall, live: Any, services: Any) -> None:
        services.start(live, [self])

    return [(ActivityCall, "ring", ring)]
