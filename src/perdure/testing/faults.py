"""Faults: a wrapper around a real store that crashes or lies at a chosen commit.

The commits of a store are numbered from 1. At the chosen one the process dies before,
in or after it; or the commit happens, or does not, and its answer is lost.
"""

import contextlib
from collections.abc import Callable
from enum import Enum

from perdure.errors import StoreUnavailable
from perdure.stores.answers import Committed, Failed, Outcome, Unknown
from perdure.stores.operations import Batch
from perdure.stores.sqlite import SqliteStore


class Fault(Enum):
    """What happens at the chosen commit."""

    CRASH_BEFORE = "the process dies before the commit"
    CRASH_IN = "the process dies with the transaction open"
    CRASH_AFTER = "the process dies after the commit, before its answer"
    LOST_ANSWER = "the commit happens, its answer is lost"
    LOST_COMMIT = "the commit does not happen, its answer is lost"
    REFUSED = "the database refuses the commit and says so"


class Crash(Exception):  # noqa: N818 - it is what it says
    """The simulated process died; the environment starts another one."""


_CRASHES = frozenset({Fault.CRASH_BEFORE, Fault.CRASH_IN, Fault.CRASH_AFTER})


class FaultyStore(SqliteStore):
    """The real SQLite store, on the loop's thread, with one fault to come."""

    def __init__(self, path: str | None) -> None:
        super().__init__(path, threads=False)
        self.commits = 0
        self.has_crashed = False
        self.crashed: Callable[[], None] = lambda: None
        self.before_commit: Callable[[Batch], None] = lambda _: None
        self.after_commit: Callable[[Batch], None] = lambda _: None
        self._fault: tuple[int, Fault] | None = None
        self._dies_in_commit = False
        # While this is so, nobody knows what becomes of a commit, and nothing does.
        self.is_broken = False

    def fail_at(self, number: int, fault: Fault) -> None:
        """Do this at the commit of that number, counted from now on."""
        self._fault = (self.commits + number, fault)

    @property
    def is_spent(self) -> bool:
        """Whether the fault has happened."""
        return self._fault is None

    def commit(self, batch: Batch, done: Callable[[Outcome], None]) -> None:
        if self.has_crashed:
            return
        self.before_commit(batch)
        self.commits += 1
        if self.is_broken:
            done(Unknown(StoreUnavailable(self.url, "injected: the disk is broken")))
            return
        if self._fault is None or self.commits < self._fault[0]:
            super().commit(batch, lambda outcome: self._told(batch, outcome, done))
            return
        fault, self._fault = self._fault[1], None
        if fault in _CRASHES:
            self._crash(batch, fault)
        else:
            self._lie(batch, fault, done)

    def _told(self, batch: Batch, outcome: Outcome, done: Callable[[Outcome], None]) -> None:
        self.after_commit(batch)
        done(outcome)

    def _crash(self, batch: Batch, fault: Fault) -> None:
        if fault is Fault.CRASH_AFTER:
            super().commit(batch, lambda _: None)
        elif fault is Fault.CRASH_IN:
            self._dies_in_commit = True
            with contextlib.suppress(_DiedInCommit):
                self._apply(batch)
        self.has_crashed = True
        self.crashed()

    def _finish(self, committed: Committed) -> Outcome:
        if self._dies_in_commit:
            self._roll_back()
            raise _DiedInCommit
        return super()._finish(committed)

    def _lie(self, batch: Batch, fault: Fault, done: Callable[[Outcome], None]) -> None:
        if fault is Fault.LOST_ANSWER:
            super().commit(batch, lambda _: None)
        error = StoreUnavailable(self.url, f"injected: {fault.value}")
        done(Failed(error) if fault is Fault.REFUSED else Unknown(error))


class _DiedInCommit(Exception):  # noqa: N818 - never leaves this module
    """The transaction was open when the process died."""
