"""The states a run can be in, and those it never leaves."""

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


OPEN = frozenset({Status.PENDING, Status.RUNNING, Status.SUSPENDED})
