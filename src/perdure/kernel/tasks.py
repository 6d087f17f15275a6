"""What a task is started with: the arguments of its activity, and how its caller wants that to be tried."""

import msgspec

from perdure.kernel.retry import Retry


class TaskInput(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a task is started with: the activity's arguments, and how its caller wants it to be tried."""

    arguments: msgspec.Raw
    timeout: float
    max_attempts: int
    initial_interval: float
    backoff: float
    max_interval: float
    non_retryable: tuple[str, ...] = ()
    heartbeat: float | None = None
    at_most_once: bool = False
    # When it is too late to begin, and how long that is after the call.
    begin_by: int | None = None
    queue_timeout: float | None = None
    transaction: bool = False
    has_timeout: bool = False

    @property
    def retry(self) -> Retry:
        """How it is tried again; errors are known by their names."""
        return Retry(self.max_attempts, self.initial_interval, self.backoff, self.max_interval, self.non_retryable)


def too_late(activity: str, queue: str, queue_timeout: float) -> str:
    """What is said of an activity that waited for too long to be begun."""
    return (
        f"no worker of the queue {queue!r} has begun the activity {activity!r} within its queue_timeout of "
        f"{queue_timeout:g} s"
    )
