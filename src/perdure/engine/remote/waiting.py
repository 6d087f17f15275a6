"""Remote workers that wait for something to do: told when something was written that may be it.

In:   commits of this process, word of those of others.
Out:  a word to everybody who waits; who looks then finds out whether it was meant.
"""

import asyncio
import secrets
from collections.abc import Iterator
from contextlib import contextmanager

from perdure.clock import Clock
from perdure.engine.committer import Committer

# Who waits for something to do looks so often all the same: whether it has lost its lease, and what nobody told.
LOOK_AGAIN_MS = 1000
# Together what a number of JSON holds in every language.
PROCESS_BITS, COUNT_BITS = 21, 32


class WorkWaiters:
    """Those in this process who want to know that there may be work."""

    def __init__(self, committer: Committer, clock: Clock) -> None:
        self._committer = committer
        self._clock = clock
        # In the order in which they came.
        self._waiters: dict[WorkWaiter, None] = {}
        # How often there may have been work since somebody first wanted to know what was missed; it begins with a
        # number of this process, so that who asks now here and now there is not taken for one who has missed something.
        self.count = secrets.randbits(PROCESS_BITS) << COUNT_BITS
        self._is_counted = False

    @contextmanager
    def one_more(self) -> "Iterator[WorkWaiter]":
        """Somebody who is told meanwhile."""
        waiter = self.join()
        try:
            yield waiter
        finally:
            self.leave(waiter)

    def join(self) -> "WorkWaiter":
        """Somebody who is told from now on; while nobody is, commits are not looked at."""
        waiter = WorkWaiter(self._clock)
        self._waiters[waiter] = None
        self._committer.on_work = self.tell
        return waiter

    def leave(self, waiter: "WorkWaiter") -> None:
        """Tell this one no more."""
        self._waiters.pop(waiter, None)
        if not self._waiters and not self._is_counted:
            self._committer.on_work = None

    def counted(self) -> int:
        """How often there may have been work; who asks again later sees whether there was more meanwhile."""
        self._is_counted = True
        self._committer.on_work = self.tell
        return self.count

    def is_known(self, count: int) -> bool:
        """Whether this process has told that count, or nobody has told any yet."""
        return not count or count >> COUNT_BITS == self.count >> COUNT_BITS

    def tell(self) -> None:
        """There may be work."""
        self.count += 1
        for waiter in self._waiters:
            waiter.told.set()


class WorkWaiter:
    """One who wants to know."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.told = asyncio.Event()

    async def wait_for_word(self) -> None:
        """Until there may be something."""
        await self.told.wait()
        self.told.clear()

    async def wait(self, ms: int) -> None:
        """Until there may be something, or so long; what is told while the waiter looks is not lost."""
        alarm = self._clock.call_at(self._clock.now() + ms, self.told.set)
        try:
            await self.told.wait()
        finally:
            alarm.cancel()
        self.told.clear()
