"""What can go wrong in a simulated world, and at which moment."""

from enum import Enum

from perdure.stores.operations import Batch, ClaimRuns, EndRun, ParkRun, RaiseEpoch


class Fault(Enum):
    """A fault, and what it is in the real world."""

    CRASH = "a process dies between two things it does"
    CRASH_LOOP = "a process dies again and again, each time with work in its hands"
    CRASH_BEFORE = "a process dies before its next commit"
    CRASH_IN = "a process dies in the middle of its next transaction"
    CRASH_AFTER = "a process dies after its next commit, before it learns of it"
    LOST_ANSWER = "the next commit happens, its answer is lost"
    LOST_COMMIT = "the next commit does not happen, and nobody knows"
    REFUSED = "the next commit is refused"
    FREEZE = "a process is stopped as a whole and goes on later"
    FREEZE_AT = "a process is stopped with its next commit on its way, and goes on later"
    STALL = "a process's event loop is blocked, its threads go on"
    SLOW_DISK = "nothing is written or read for a while"
    BROKEN_DISK = "nothing can be written or read for a while, and of some writes nobody knows"
    FULL_DISK = "nothing can be written for a while, but read"
    LOST_HINTS = "a process does not notice what others have written"
    CLOCK_BACK = "a process's wall clock is set back"
    CLOCK_FORWARD = "a process's wall clock is set forward"
    STOP = "a process is told to stop, and started again"
    OTHER_CODE = "a process is started again with other code"


# Those that strike with the next commit.
AT_COMMIT = frozenset(
    {
        Fault.CRASH_BEFORE,
        Fault.CRASH_IN,
        Fault.CRASH_AFTER,
        Fault.LOST_ANSWER,
        Fault.LOST_COMMIT,
        Fault.REFUSED,
        Fault.FREEZE_AT,
    }
)
DEADLY = frozenset({Fault.CRASH_BEFORE, Fault.CRASH_IN, Fault.CRASH_AFTER})


class Moment(Enum):
    """Which commit a fault waits for that strikes with one."""

    ANY = "the next one, whatever it is"
    CLAIM = "one that takes runs"
    TAKEOVER = "one that raises an epoch, another's or its own"
    PARK = "one that parks a run"
    END = "one that ends a run"
    CODE = "one with the rows of an activity"

    def is_in(self, batch: Batch, *, has_code: bool) -> bool:
        """Whether this batch is what was waited for."""
        if self is Moment.CODE:
            return has_code
        wanted = _MARKS.get(self)
        return wanted is None or any(type(operation) is wanted for group in batch.groups for operation in group)


_MARKS: dict[Moment, type] = {
    Moment.CLAIM: ClaimRuns,
    Moment.TAKEOVER: RaiseEpoch,
    Moment.PARK: ParkRun,
    Moment.END: EndRun,
}
