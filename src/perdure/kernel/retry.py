"""When to try an activity again."""

import math

import msgspec

from perdure.errors import BadOption
from perdure.kernel.failure import Failure


class Retry(msgspec.Struct, frozen=True):
    """How often, and how soon, a failed activity is tried again.

    Intervals are seconds. `non_retryable` holds error types, or their names, that
    end the activity at once.
    """

    max_attempts: int = 3
    initial_interval: float = 1
    backoff: float = 2
    max_interval: float = 100
    non_retryable: tuple[type[BaseException] | str, ...] = ()

    def __post_init__(self) -> None:
        if self.max_attempts < 1:
            raise BadOption(f"max_attempts is {self.max_attempts}; an activity is tried at least once")
        intervals = (self.initial_interval, self.max_interval, self.backoff)
        if not all(isinstance(number, int | float) and math.isfinite(number) for number in intervals):
            raise BadOption(f"{self}: intervals and backoff are finite numbers")
        if self.initial_interval < 0 or self.max_interval < 0 or self.backoff < 1:
            raise BadOption(f"{self}: intervals are 0 or more, backoff is 1 or more")


def next_attempt_at(retry: Retry, attempt: int, failed_at: int) -> int | None:
    """When to try again after the given failed attempt; None when attempts are spent."""
    if attempt >= retry.max_attempts:
        return None
    try:
        delay = retry.initial_interval * retry.backoff ** (attempt - 1)
    except OverflowError:
        delay = retry.max_interval
    return failed_at + math.ceil(min(delay, retry.max_interval) * 1000)


def is_retryable(retry: Retry, error: BaseException, failure: Failure) -> bool:
    """Whether this error is worth another attempt; types match subclasses, names match exactly."""
    for kind in retry.non_retryable:
        if isinstance(kind, str):
            if kind in (failure.type, failure.type.rpartition(".")[2]):
                return False
        elif isinstance(error, kind):
            return False
    return True
