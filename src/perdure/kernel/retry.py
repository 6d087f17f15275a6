"""When to try an activity again."""

import math

import msgspec

from perdure.errors import BadOption
from perdure.kernel.failure import Failure

# Longer than this is a mistake, and would leave the range of dates.
LONGEST_SECONDS = 1000 * 365 * 86_400


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
        if type(self.max_attempts) is not int or self.max_attempts < 1:
            raise BadOption(f"max_attempts is {self.max_attempts!r}; an activity is tried at least once")
        for name in ("initial_interval", "backoff", "max_interval"):
            number = getattr(self, name)
            if type(number) not in (int, float) or not math.isfinite(number):
                raise BadOption(f"{name} is {number!r}; give a finite number")
        if not (0 <= self.initial_interval <= LONGEST_SECONDS and 0 <= self.max_interval <= LONGEST_SECONDS):
            raise BadOption(f"{self}: intervals are 0 seconds to 1000 years")
        if self.backoff < 1:
            raise BadOption(f"{self}: backoff is 1 or more")
        if not isinstance(self.non_retryable, tuple | list) or not all(map(_is_error_type, self.non_retryable)):
            raise BadOption(f"non_retryable is {self.non_retryable!r}; give a tuple of error types or their names")


def _is_error_type(kind: object) -> bool:
    return isinstance(kind, str) or (isinstance(kind, type) and issubclass(kind, BaseException))


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
