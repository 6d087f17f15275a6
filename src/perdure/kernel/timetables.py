"""Timetables: when a schedule starts runs, and what becomes of a time that finds the last run open, or was missed.

In:   what people give: `Cron`, `Every`, `At`; checked when it is made.
Out:  nominal times, in UTC, strictly increasing; BadSchedule for what makes no sense.
"""

import math
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from itertools import dropwhile, islice
from typing import Literal, TypeAlias, get_args

import msgspec

from perdure.errors import BadSchedule
from perdure.kernel.cron import LAST_YEAR, expression_of, refuse_misleading

Overlap: TypeAlias = Literal["skip", "queue_one", "queue_all", "cancel_old", "terminate_old", "allow_all"]
CatchUp: TypeAlias = Literal["latest", "none", "all"]

SHORTEST_INTERVAL = 1.0
LONGEST_SECONDS = 100 * 366 * 86_400.0
MILLISECOND = timedelta(milliseconds=1)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Timing(msgspec.Struct, frozen=True, kw_only=True):
    """What all timetables have: what becomes of a time that overlaps or was missed, jitter, the first and the last.

    Durations are kept as seconds, moments in UTC to the millisecond.
    """

    overlap: Overlap = "skip"
    catch_up: CatchUp = "latest"
    within: timedelta | float | None = None
    jitter: timedelta | float = 0.0
    starts_at: datetime | None = None
    ends_at: datetime | None = None

    def __post_init__(self) -> None:
        one_of("overlap", self.overlap, get_args(Overlap))
        one_of("catch_up", self.catch_up, get_args(CatchUp))
        self._keep("jitter", seconds("jitter", self.jitter))
        if self.within is not None:
            self._keep("within", seconds("within", self.within))
        for name in ("starts_at", "ends_at"):
            if (given := getattr(self, name)) is not None:
                self._keep(name, moment(name, given))
        if self.starts_at is not None and self.ends_at is not None and self.ends_at < self.starts_at:
            raise BadSchedule(f"ends_at, {self.ends_at}, lies before starts_at, {self.starts_at}")

    def _keep(self, name: str, value: object) -> None:
        msgspec.structs.force_setattr(self, name, value)

    def __repr__(self) -> str:
        """As one would write it: what is not the default."""
        name, defaults = type(self).__name__, {field.name: field.default for field in msgspec.structs.fields(self)}
        given = [(key, value) for key, value in msgspec.structs.asdict(self).items() if value != defaults[key]]
        return f"{name}({', '.join(f'{key}={value!r}' for key, value in given)})"

    def refuse_misleading(self) -> None:
        """BadSchedule for what does not mean what it seems to; only of what people give, not of what was kept."""

    def _nominal(self, after: datetime) -> Iterator[datetime]:
        raise NotImplementedError

    def times_after(self, after: datetime) -> Iterator[datetime]:
        """The nominal times after a moment; the first may be `starts_at`, the last `ends_at`."""
        if self.starts_at is not None:
            after = max(after, self.starts_at - MILLISECOND)
        for time in dropwhile(lambda time: time <= after, self._nominal(after)):
            if self.ends_at is not None and time > self.ends_at:
                return
            yield time

    def counted(self, after: datetime, until: datetime) -> tuple[int, datetime] | None:
        """How many nominal times lie after a moment and up to another, and the last; None when they must be walked."""
        return None

    def times(self, after: datetime, limit: int) -> list[datetime]:
        """The next so many nominal times after a moment; fewer when no more come."""
        if type(limit) is not int or limit < 1:
            raise BadSchedule(f"limit is {limit!r}; give a whole number from 1 on")
        return list(islice(self.times_after(moment("after", after)), limit))

    def delay(self, name: str, nominal: datetime, following: datetime | None) -> timedelta:
        """How long after its nominal time a run starts: always as long, and before the following time."""
        if not (most := seconds("jitter", self.jitter)):
            return timedelta()
        if following is not None:
            most = min(most, (following - nominal).total_seconds())
        digest = blake2b(f"{name}@{nominal.isoformat()}".encode(), digest_size=6).digest()
        return MILLISECOND * int(most * 1000 * int.from_bytes(digest, "big") / (1 << 48))


class Cron(Timing, frozen=True, tag="cron"):
    """The times that a cron expression names in a zone: `Cron("0 2 * * *", "Europe/Berlin")`.

    It has 5 fields (minute, hour, day, month, weekday), 6 (seconds first) or 7 (years last). Where the clock changes, a
    fixed time that does not exist starts right after the gap, and one that exists twice starts at the first; where
    minute or hour begins with `*` real time counts.
    """

    expression: str
    zone: str = "UTC"

    def __post_init__(self) -> None:
        super().__post_init__()
        expression_of(self.expression, self.zone)

    def refuse_misleading(self) -> None:
        refuse_misleading(self.expression)

    def _nominal(self, after: datetime) -> Iterator[datetime]:
        return expression_of(self.expression, self.zone).after(after)


class Every(Timing, frozen=True, tag="every"):
    """Again and again after the same time, counted from the epoch: `Every(timedelta(minutes=15))`; it knows no zone."""

    interval: timedelta | float
    offset: timedelta | float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        interval, offset = seconds("interval", self.interval), seconds("offset", self.offset)
        if interval < SHORTEST_INTERVAL:
            raise BadSchedule(f"interval is {self.interval!r}; give at least one second")
        if offset >= interval:
            raise BadSchedule(f"offset is {self.offset!r}; give less than the interval, {self.interval!r}")
        self._keep("interval", interval)
        self._keep("offset", offset)

    def _grid(self) -> tuple[timedelta, timedelta]:
        interval, offset = (MILLISECOND * round(seconds("", each) * 1000) for each in (self.interval, self.offset))
        return interval, offset

    def counted(self, after: datetime, until: datetime) -> tuple[int, datetime] | None:
        interval, offset = self._grid()
        after = after if self.starts_at is None else max(after, self.starts_at - MILLISECOND)
        until = until if self.ends_at is None else min(until, self.ends_at)
        first, last = ((moment - EPOCH - offset) // interval for moment in (after, until))
        return max(last - first, 0), EPOCH + offset + interval * last

    def _nominal(self, after: datetime) -> Iterator[datetime]:
        interval, offset = self._grid()
        number = (after - EPOCH - offset) // interval
        while (time := EPOCH + offset + interval * number).year <= LAST_YEAR:
            yield time
            number += 1


class At(Timing, frozen=True, tag="at"):
    """Once: `At(datetime(2027, 1, 1, tzinfo=UTC))`."""

    moment: datetime

    def __post_init__(self) -> None:
        super().__post_init__()
        self._keep("moment", moment("the moment of an At", self.moment))

    def _nominal(self, after: datetime) -> Iterator[datetime]:
        yield self.moment


Timetable: TypeAlias = Cron | Every | At


def one_of(what: str, given: object, known: tuple[str, ...]) -> None:
    """BadSchedule unless it is one of these."""
    if given not in known:
        raise BadSchedule(f"{what} is {given!r}; give one of {', '.join(map(repr, known))}")


def seconds(what: str, given: object) -> float:
    """A duration in seconds; BadSchedule when it is none."""
    if type(given) is float and 0.0 <= given <= LONGEST_SECONDS:
        return given
    number = given.total_seconds() if isinstance(given, timedelta) else given
    if not isinstance(number, int | float) or isinstance(number, bool) or not math.isfinite(number):
        raise BadSchedule(f"{what} is {given!r}; give a timedelta or a number of seconds")
    if not 0 <= number <= LONGEST_SECONDS:
        raise BadSchedule(f"{what} is {given!r}; give a duration from 0 to 100 years")
    return float(number)


def moment(what: str, given: object) -> datetime:
    """A moment in UTC, to the millisecond, never early; BadSchedule for one without a zone."""
    if type(given) is datetime and given.tzinfo is UTC and not given.microsecond % 1000 and given.year <= LAST_YEAR:
        return given
    if not isinstance(given, datetime) or given.utcoffset() is None:
        raise BadSchedule(f"{what} is {given!r}; give a datetime with a zone, such as datetime.now(UTC)")
    if given.year > LAST_YEAR or given.year < EPOCH.year:
        raise BadSchedule(f"{what} is {given!r}; give one of the years {EPOCH.year} to {LAST_YEAR}")
    since = given.astimezone(UTC) - EPOCH
    return EPOCH + MILLISECOND * -(-since // MILLISECOND)
