"""Cron: the moments that an expression names in a zone.

In:   an expression of 5, 6 (seconds first) or 7 fields (years last), or `@daily` and the like; a zone; a moment.
Out:  the moments after it, in UTC, strictly increasing; BadSchedule for what cannot be read.

One rule for clock changes, that of Debian's cron: a fixed time that does not exist counts at the first moment after
the gap, once; one that exists twice counts the first time. Where minute or hour begins with `*` real time counts: what
does not exist is left out, and a repeated hour counts twice. cronsim reads the fields; the rule is ours, for all.
"""

from bisect import bisect_left
from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta
from functools import lru_cache
from typing import NamedTuple
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from cronsim import CronSim, CronSimError

from perdure.errors import BadSchedule

NAMES = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
}
UNREADABLE = (CronSimError, AssertionError, TypeError)
LONGEST_EXPRESSION = 200
FIRST_YEAR, LAST_YEAR = 1970, 2199
# So many years are looked through: a leap day on a given weekday comes within them.
HORIZON_YEARS = 50
ONE_SECOND, ONE_DAY, HALF_A_DAY = timedelta(seconds=1), timedelta(days=1), timedelta(hours=12)
# No wall is further from UTC.
FURTHEST = timedelta(hours=15)
EPOCH = datetime(FIRST_YEAR, 1, 1)  # noqa: DTZ001 - what a wall shows has no zone
_PLAIN, _WITH_SECONDS, _WITH_YEARS = 5, 6, 7


class CronField(NamedTuple):
    """What a field of an expression is called, how many values there are of it, and what fits."""

    name: str
    values: int
    fits: str


FIELDS = (
    CronField("second", 60, "0-59"),
    CronField("minute", 60, "0-59"),
    CronField("hour", 24, "0-23"),
    CronField("day of the month", 31, "1-31, L for the last one, LW for the last from Monday to Friday"),
    CronField("month", 12, "1-12 or JAN-DEC"),
    CronField("weekday", 7, "0-7 or SUN-SAT, 5L for the last Friday of a month, 5#2 for the second"),
)


def zone_named(name: object) -> ZoneInfo:
    """The zone; BadSchedule when there is none of this name."""
    trouble = f"no time zone is named {name!r}; give one such as 'Europe/Berlin' or 'UTC'"
    if not isinstance(name, str) or not name:
        raise BadSchedule(trouble)
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise BadSchedule(trouble) from None


@lru_cache(maxsize=1000)
def expression_of(text: str, zone: str) -> "CronExpression":
    """The expression, read; many schedules have the same few."""
    return CronExpression(text, zone)


class CronExpression:
    """An expression that was read, in its zone."""

    def __init__(self, text: str, zone: str) -> None:
        self._zone = zone_named(zone)
        fields, self._years = _fields_of(text)
        try:
            self._fields = fields_read = CronSim(" ".join(fields), EPOCH)
        except UNREADABLE as error:
            raise _unreadable(text, fields, error) from None
        self._hours, self._minutes = sorted(fields_read.hours), sorted(fields_read.minutes)
        self._seconds = sorted(fields_read.seconds)
        minute_field, hour_field = fields[-5], fields[-4]
        self._follows_real_time = minute_field.startswith("*") or hour_field.startswith("*")

    def after(self, moment: datetime) -> Iterator[datetime]:
        """The moments after this one, as far as they come within fifty years."""
        start = moment.astimezone(UTC).replace(microsecond=0)
        return self._real_times(start) if self._follows_real_time else self._fixed_times(start)

    # Fixed times

    def _fixed_times(self, after: datetime) -> Iterator[datetime]:
        """Times of the wall, each once: where it first shows them, or where it has jumped over them."""
        last, start = after, self._wall(after)
        for wall in self._walls(start, datetime.combine(_horizon(start), time())):
            moment = self._moment_of(wall)
            if moment > last:
                last = moment
                yield moment

    def _moment_of(self, wall: datetime) -> datetime:
        """The first moment at which the wall shows this time, or the first after the gap that it is in."""
        moment = wall.replace(tzinfo=self._zone).astimezone(UTC)
        if self._wall(moment) == wall:
            return moment
        # In a gap the offset before it was taken, so that the moment lies behind the change.
        return self._first_change(moment - ONE_DAY, moment)

    # Real time

    def _real_times(self, after: datetime) -> Iterator[datetime]:
        """Moments at which the wall shows a time of ours, by stretches in which its offset stays the same."""
        start = after + ONE_SECOND
        while (day := next(self._days(self._wall(start).date(), _horizon(after)), None)) is not None:
            start = max(start, datetime(day.year, day.month, day.day, tzinfo=UTC) - FURTHEST)
            end, offset = start + HALF_A_DAY, self._offset(start)
            if self._offset(end) != offset:
                end = self._first_change(start, end)
            first = self._wall(start)
            for wall in self._walls(first, first + (end - start)):
                yield (wall - offset).replace(tzinfo=UTC)
            start = end

    # What both need

    def _walls(self, start: datetime, end: datetime) -> Iterator[datetime]:
        """Times of the wall that match, from the first given one up to the last, which is not among them."""
        for day in self._days(start.date(), end.date()):
            midnight = datetime(day.year, day.month, day.day)  # noqa: DTZ001 - as above
            for second in self._seconds_of_day(max(start - midnight, timedelta()) // ONE_SECOND):
                wall = midnight + timedelta(seconds=second)
                if wall >= end:
                    return
                yield wall

    def _seconds_of_day(self, first: int) -> Iterator[int]:
        """The seconds of a day that match, from one of them on."""
        for hour in self._hours[bisect_left(self._hours, first // 3600) :]:
            for minute in self._minutes:
                begin = hour * 3600 + minute * 60
                if begin + 59 >= first:
                    yield from (begin + second for second in self._seconds if begin + second >= first)

    def _days(self, first: date, last: date) -> Iterator[date]:
        """Days that match, both of these among them."""
        day = first
        while day <= last:
            if self._years is not None and day.year not in self._years:
                day = date(day.year + 1, 1, 1)
            elif day.month not in self._fields.months:
                day = (day.replace(day=1) + timedelta(days=32)).replace(day=1)
            else:
                if self._fields.match_day(day):
                    yield day
                day += ONE_DAY

    def _wall(self, moment: datetime) -> datetime:
        return moment.astimezone(self._zone).replace(tzinfo=None, fold=0)

    def _offset(self, moment: datetime) -> timedelta:
        return self._wall(moment) - moment.replace(tzinfo=None)

    def _first_change(self, low: datetime, high: datetime) -> datetime:
        """The first moment with the offset of `high`, where `low` has another one."""
        offset = self._offset(high)
        while high - low > ONE_SECOND:
            middle = low + ONE_SECOND * ((high - low) // ONE_SECOND // 2)
            if self._offset(middle) == offset:
                high = middle
            else:
                low = middle
        return high


def refuse_misleading(text: str) -> None:
    """BadSchedule for a step beyond the end of its field, which starts as often as none, and years without an end.

    Every 90 minutes is no cron, and `2027-` is read as 2027 alone. Only of what people give: an expression that was
    taken before is read as it was.
    """
    fields, years = _fields_of(text)
    given_years = "" if years is None else text.rsplit(maxsplit=1)[-1]
    if any(part.partition("/")[0].endswith("-") for part in given_years.split(",")):
        raise BadSchedule(
            f"the cron expression {text!r} cannot be read: the year is {given_years!r}, of which the end is missing; "
            f"give a range such as 2027-{LAST_YEAR}"
        )
    for field, given in zip(FIELDS[-len(fields) :], fields, strict=True):
        for part in given.split(","):
            span, _, step = part.partition("/")
            if step.isdecimal() and int(step) > field.values:
                raise BadSchedule(
                    f"the cron expression {text!r} steps by {step} in the {field.name}, of which there are only "
                    f"{field.values}: it starts at {'the first' if span == '*' else span} alone; give a smaller step, "
                    "or a schedule of intervals, which may have any length: Every(...), or --every"
                )


def _unreadable(text: str, fields: list[str], error: Exception) -> BadSchedule:
    """The field at fault, what was given, and what would fit."""
    for at, (field, given) in enumerate(zip(FIELDS[-len(fields) :], fields, strict=True)):
        try:
            CronSim(" ".join(["*"] * at + [given] + ["*"] * (len(fields) - at - 1)), EPOCH)
        except UNREADABLE:
            if field is FIELDS[-1] and given.partition("/")[2][:1].isalpha():
                return BadSchedule(
                    f"the cron expression {text!r} ends in what looks like a time zone; give it beside the expression: "
                    f"Cron(..., {given!r}), or --zone"
                )
            return BadSchedule(
                f"the cron expression {text!r} cannot be read: the {field.name} is {given!r}; give {field.fits}, * for "
                "all, a list 1,2, a range 1-5 or a step */2"
            )
    if str(error) == "Bad day-of-month":
        return BadSchedule(f"the cron expression {text!r} never starts: no month that it names has such a day")
    return BadSchedule(f"the cron expression {text!r} cannot be read: {error}")


def _horizon(start: datetime) -> date:
    return date(min(start.year + HORIZON_YEARS, LAST_YEAR), 12, 31)


def _fields_of(text: object) -> tuple[list[str], frozenset[int] | None]:
    """The fields but that of the years, and the years; None for all of them."""
    if not isinstance(text, str) or not text.strip() or len(text) > LONGEST_EXPRESSION:
        raise BadSchedule(
            f"the cron expression is {text!r:.60}; give up to {LONGEST_EXPRESSION} characters such as '0 2 * * *'"
        )
    fields = NAMES.get(text.strip().lower(), text).split()
    if not _PLAIN <= len(fields) <= _WITH_YEARS:
        count = "1 field" if len(fields) == 1 else f"{len(fields)} fields"
        raise BadSchedule(
            f"the cron expression {text!r} has {count}; give 5 (minute hour day month weekday), 6 (seconds first), 7 "
            f"(years last), or one of {', '.join(NAMES)}"
        )
    if len(fields) < _WITH_YEARS:
        return fields, None
    return fields[:_WITH_SECONDS], _years_of(fields[-1], text)


def _years_of(field: str, text: str) -> frozenset[int] | None:
    """The years of a field such as `*`, `2027`, `2027-2030/2,2040`; None for all."""
    if field == "*":
        return None
    years: set[int] = set()
    for part in field.split(","):
        span, _, step = part.partition("/")
        low, _, high = (f"{FIRST_YEAR}-{LAST_YEAR}" if span == "*" else span).partition("-")
        high = high or (str(LAST_YEAR) if step else low)
        numbers = (low, high, step or "1")
        if not all(number.isascii() and number.isdigit() for number in numbers) or ("/" in part and not step):
            raise BadSchedule(
                f"the cron expression {text!r} cannot be read: the year is {field!r}; give a year such as 2027, * for "
                "all, a list, a range 2027-2030 or a step */2"
            )
        first, last, every = map(int, numbers)
        if not FIRST_YEAR <= first <= last <= LAST_YEAR or not every:
            raise BadSchedule(
                f"the cron expression {text!r} cannot be read: the year is {field!r}; give years from {FIRST_YEAR} to "
                f"{LAST_YEAR}"
            )
        years.update(range(first, last + 1, every))
    return frozenset(years)
