"""Durations: a timedelta, or a number of seconds."""

import math
from datetime import timedelta
from typing import TypeAlias

from perdure.errors import BadOption
from perdure.kernel.retry import LONGEST_SECONDS

Duration: TypeAlias = timedelta | float


def seconds(duration: Duration, what: str) -> float:
    """The duration in seconds; BadOption when it is not one."""
    if isinstance(duration, timedelta):
        number = duration.total_seconds()
    elif isinstance(duration, int | float) and not isinstance(duration, bool):
        number = float(duration)
    else:
        raise BadOption(f"{what} is {duration!r}; give a timedelta or a number of seconds")
    if not math.isfinite(number) or number < 0 or number > LONGEST_SECONDS:
        raise BadOption(f"{what} is {duration!r}; give a duration from 0 to 1000 years")
    return number


def shown(duration: Duration | None) -> str:
    """The duration as people read it: a number with its unit, a timedelta as Python writes it."""
    return str(duration) if isinstance(duration, timedelta) or duration is None else f"{duration:g} s"
