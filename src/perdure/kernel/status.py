"""The states a run can be in, those it never leaves, and why it can be held."""

from enum import StrEnum


class Status(StrEnum):
    """Where a run stands. The last six are final."""

    PENDING = "PENDING"
    RUNNING = "RUNNING"
    SUSPENDED = "SUSPENDED"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"
    TERMINATED = "TERMINATED"
    TIMED_OUT = "TIMED_OUT"
    CONTINUED = "CONTINUED"

    @property
    def is_closed(self) -> bool:
        return self not in OPEN


# Why a run can be held; it is SUSPENDED then.
PAUSED = "paused"
HOLDS = ("mismatch", "quarantine", PAUSED)
# What people ask for when they mean any of these.
HELD = "held"
OPEN = frozenset({Status.PENDING, Status.RUNNING, Status.SUSPENDED})
