"""Cron, Every, At: the times they name, clock changes above all, beside an oracle that steps through UTC by minutes."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import islice, pairwise
from zoneinfo import ZoneInfo, available_timezones

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.errors import BadSchedule
from perdure.kernel.timetables import At, Cron, Every, Timetable

MINUTE, DAY = timedelta(minutes=1), timedelta(days=1)


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def shown(times: list[datetime]) -> list[str]:
    return [time.isoformat(sep=" ").removesuffix("+00:00").removesuffix(":00") for time in times]


# Tables


@pytest.mark.parametrize(
    ("expression", "zone", "after", "expected"),
    [
        # A fixed time that does not exist starts at the first moment after the gap, with 5, 6 and 7 fields.
        ("30 2 * * *", "Europe/Berlin", "2026-03-28 12:00", ["2026-03-29 01:00", "2026-03-30 00:30"]),
        ("0 30 2 * * *", "Europe/Berlin", "2026-03-28 12:00", ["2026-03-29 01:00", "2026-03-30 00:30"]),
        ("0 30 2 * * * 2026", "Europe/Berlin", "2026-03-28 12:00", ["2026-03-29 01:00", "2026-03-30 00:30"]),
        # Several in one gap, and the end of the gap itself, are one.
        ("15,45 2,3 * * *", "Europe/Berlin", "2026-03-29 00:00", ["2026-03-29 01:00", "2026-03-29 01:15"]),
        ("0 2,3 * * *", "Europe/Berlin", "2026-03-29 00:00", ["2026-03-29 01:00", "2026-03-30 00:00"]),
        # One that exists twice starts at the first, also when asked inside the repeated hour.
        ("30 2 * * *", "Europe/Berlin", "2026-10-24 12:00", ["2026-10-25 00:30", "2026-10-26 01:30"]),
        ("30 2 * * *", "Europe/Berlin", "2026-10-25 00:45", ["2026-10-26 01:30", "2026-10-27 01:30"]),
        ("30 2 * * *", "Europe/Berlin", "2026-10-25 01:15", ["2026-10-26 01:30", "2026-10-27 01:30"]),
        # Stepping expressions follow real time: both hours run, what does not exist is left out.
        ("30 * * * *", "Europe/Berlin", "2026-10-25 00:00", ["2026-10-25 00:30", "2026-10-25 01:30"]),
        ("*/30 2 * * *", "Europe/Berlin", "2026-03-28 12:00", ["2026-03-30 00:00", "2026-03-30 00:30"]),
        ("*/30 2 25 10 *", "Europe/Berlin", "2026-01-01 00:00", ["2026-10-25 00:00", "2026-10-25 00:30"]),
        # A gap of half an hour, and one at midnight.
        ("15 2 * * *", "Australia/Lord_Howe", "2026-10-03 00:00", ["2026-10-03 15:30", "2026-10-04 15:15"]),
        ("0 0 * * *", "America/Santiago", "2026-09-05 05:00", ["2026-09-06 04:00", "2026-09-07 03:00"]),
        # Names, the last day, the last Friday, the first Monday, years.
        ("0 12 * JAN MON", "UTC", "2026-11-18 00:00", ["2027-01-04 12:00", "2027-01-11 12:00"]),
        ("0 0 L * *", "UTC", "2026-11-18 00:00", ["2026-11-30 00:00", "2026-12-31 00:00"]),
        ("0 0 LW * *", "UTC", "2026-11-18 00:00", ["2026-11-30 00:00", "2026-12-31 00:00"]),
        ("0 0 * * 5L", "UTC", "2026-11-18 00:00", ["2026-11-27 00:00", "2026-12-25 00:00"]),
        ("0 0 * * MON#1", "UTC", "2026-11-18 00:00", ["2026-12-07 00:00", "2027-01-04 00:00"]),
        ("0 0 0 1 1 * 2027-2031/4,2040", "UTC", "2026-11-18 00:00", ["2027-01-01 00:00", "2031-01-01 00:00"]),
        ("0 0 29 2 *", "UTC", "2096-03-01 00:00", ["2104-02-29 00:00", "2108-02-29 00:00"]),
        # A day or a weekday, but both where one begins with a star.
        ("0 0 13 * FRI", "UTC", "2026-11-10 00:00", ["2026-11-13 00:00", "2026-11-20 00:00"]),
        ("0 0 13 * */5", "UTC", "2026-11-18 00:00", ["2026-12-13 00:00", "2027-06-13 00:00"]),
        ("@hourly", "UTC", "2026-11-18 01:30", ["2026-11-18 02:00", "2026-11-18 03:00"]),
        ("@daily", "UTC", "2026-11-18 01:30", ["2026-11-19 00:00", "2026-11-20 00:00"]),
        ("@weekly", "UTC", "2026-11-18 01:30", ["2026-11-22 00:00", "2026-11-29 00:00"]),
        ("@monthly", "UTC", "2026-11-18 01:30", ["2026-12-01 00:00", "2027-01-01 00:00"]),
        ("@yearly", "UTC", "2026-11-18 01:30", ["2027-01-01 00:00", "2028-01-01 00:00"]),
        ("*/20 * * * * *", "UTC", "2026-11-18 01:30", ["2026-11-18 01:30:20", "2026-11-18 01:30:40"]),
    ],
)
def test_cron_names_these_times(expression: str, zone: str, after: str, expected: list[str]) -> None:
    assert shown(Cron(expression, zone).times(utc(after), 2)) == expected


def test_every_is_aligned_to_the_epoch_and_may_be_moved() -> None:
    after = utc("2026-11-18 01:07")
    assert shown(Every(timedelta(minutes=15)).times(after, 2)) == ["2026-11-18 01:15", "2026-11-18 01:30"]
    assert shown(Every(900, offset=60).times(after, 2)) == ["2026-11-18 01:16", "2026-11-18 01:31"]
    assert shown(Every(900).times(utc("2026-11-18 01:15"), 1)) == ["2026-11-18 01:30"]


def test_at_is_once() -> None:
    moment = utc("2027-01-01 00:00")
    assert At(moment).times(utc("2026-11-18 00:00"), 5) == [moment]
    assert At(moment).times(moment, 5) == []


def test_a_timetable_begins_and_ends() -> None:
    """The two moments themselves count."""
    hourly = Every(3600, starts_at=utc("2026-11-18 02:00"), ends_at=utc("2026-11-18 04:00"))
    expected = ["2026-11-18 02:00", "2026-11-18 03:00", "2026-11-18 04:00"]
    assert shown(hourly.times(utc("2026-11-01 00:00"), 9)) == expected
    assert shown(hourly.times(utc("2026-11-18 02:00"), 9)) == expected[1:]


NAIVE = datetime(2027, 1, 1)  # noqa: DTZ001 - on purpose


@pytest.mark.parametrize(
    "make",
    [
        lambda: Cron("* * * *"),
        lambda: Cron(""),
        lambda: Cron("@often"),
        lambda: Cron("61 * * * *"),
        lambda: Cron("0 0 30 2 *"),
        lambda: Cron("0 0 31 4,6 *"),
        lambda: Cron("0 0 * * MON#6"),
        lambda: Cron("0 0 1/0 * *"),
        lambda: Cron("0 0 0 1 1 * 1800"),
        lambda: Cron("0 0 0 1 1 * 2030-2020"),
        lambda: Cron("0 0 0 1 1 * x"),
        lambda: Cron("0," * 200 + "0 * * * *"),
        lambda: Cron(5),  # type: ignore[arg-type]  # on purpose
        lambda: Cron("0 0 * * *", "Europe/Atlantis"),
        lambda: Cron("0 0 * * *", "America"),
        lambda: Cron("0 0 * * *", "../etc/passwd"),
        lambda: Cron("0 0 * * *", None),  # type: ignore[arg-type]  # on purpose
        lambda: Every(0.5),
        lambda: Every(0),
        lambda: Every(-5),
        lambda: Every(float("nan")),
        lambda: Every("1h"),  # type: ignore[arg-type]  # on purpose
        lambda: Every(60, offset=60),
        lambda: Every(60, jitter=-1),
        lambda: Every(60, within=timedelta(days=-1)),
        lambda: Every(60, overlap="sometimes"),  # type: ignore[arg-type]  # on purpose
        lambda: Every(60, catch_up="some"),  # type: ignore[arg-type]  # on purpose
        lambda: Every(60, starts_at=NAIVE),
        lambda: Every(60, starts_at=utc("2027-01-02 00:00"), ends_at=utc("2027-01-01 00:00")),
        lambda: At(NAIVE),
        lambda: At("tomorrow"),  # type: ignore[arg-type]  # on purpose
        lambda: At(datetime(9999, 1, 1, tzinfo=UTC)),
        lambda: Every(60).times(NAIVE, 1),
        lambda: Every(60).times(utc("2027-01-01 00:00"), 0),
    ],
)
def test_what_makes_no_sense_is_refused_when_it_is_made(make: Callable[[], object]) -> None:
    with pytest.raises(BadSchedule):
        make()


@pytest.mark.parametrize(
    ("expression", "told"),
    [
        ("61 * * * *", "the minute is '61'; give 0-59, "),
        ("* 24 * * *", "the hour is '24'; give 0-23, "),
        ("* * 0 * *", "the day of the month is '0'; give 1-31, L for the last one"),
        ("* * * JANUARY *", "the month is 'JANUARY'; give 1-12 or JAN-DEC"),
        ("* * * * MON#6", "the weekday is 'MON#6'; give 0-7 or SUN-SAT, 5L"),
        ("61 0 0 * * *", "the second is '61'; give 0-59, "),
        ("0 */0 * * *", "the hour is '*/0'"),
        ("0 0 30 FEB *", "never starts: no month that it names has such a day"),
        ("0 0 0 1 1 * next", "the year is 'next'; give a year such as 2027"),
        ("0 0 0 1 1 * 3000", "the year is '3000'; give years from 1970 to 2199"),
        ("0 0 * *", "has 4 fields"),
    ],
)
def test_a_bad_cron_expression_is_told_by_its_field(expression: str, told: str) -> None:
    """Who reads `Bad minute` knows neither what was wrong nor what would be right."""
    with pytest.raises(BadSchedule) as refused:
        Cron(expression)
    assert repr(expression) in str(refused.value)
    assert told in str(refused.value)


@pytest.mark.parametrize(
    ("expression", "told"),
    [
        ("*/90 * * * *", "steps by 90 in the minute, of which there are only 60: it starts at the first alone"),
        ("0 5/36 * * *", "steps by 36 in the hour, of which there are only 24: it starts at 5 alone"),
        ("0 0 1,*/45 * *", "steps by 45 in the day of the month"),
        ("*/61 * * * * *", "steps by 61 in the second"),
        ("0 0 0 1 1 * 2027-", "the year is '2027-', of which the end is missing"),
        ("0 0 0 1 1 * 2040,2027-/2", "the year is '2040,2027-/2', of which the end is missing"),
        ("0 0 0 1 1 * 2027-2030/2,2040", None),
        ("*/60 * * * *", None),
        ("0 0 1-20/7 * *", None),
    ],
)
def test_what_misleads_is_refused_when_it_is_given_and_read_when_it_was_kept(expression: str, told: str | None) -> None:
    """Every 90 minutes was every hour, from 2027 on was 2027 alone; what is in a database goes on as it was."""
    when = msgspec.json.decode(msgspec.json.encode(Cron(expression)), type=Cron)
    if told is None:
        when.refuse_misleading()
    else:
        with pytest.raises(BadSchedule, match=told):
            when.refuse_misleading()


def test_a_timetable_comes_back_from_json_as_it_was() -> None:
    """It is kept in the row of its schedule, and compared with what the code says at each deploy."""
    for when in (
        Cron("0 2 * * *", "Europe/Berlin", jitter=timedelta(seconds=30), within=timedelta(hours=6)),
        Every(timedelta(minutes=15), overlap="queue_one", starts_at=utc("2027-01-01 00:00")),
        At(utc("2027-01-01 00:00")),
    ):
        assert msgspec.json.decode(msgspec.json.encode(when), type=Timetable) == when
    assert Every(timedelta(minutes=1)) == Every(60)


@given(st.integers(0, 10**6), st.floats(0, 5000))
def test_jitter_is_fixed_and_stays_before_the_next_time(number: int, jitter: float) -> None:
    """Another worker that decides the same time comes to the same start."""
    hourly = Every(3600, jitter=jitter)
    nominal, following = utc("2026-01-01 00:00") + timedelta(hours=number), utc("2026-01-01 01:00")
    following = nominal + timedelta(hours=1)
    delay = hourly.delay("report", nominal, following)
    assert delay == Every(3600, jitter=jitter).delay("report", nominal, following)
    assert timedelta() <= delay < timedelta(hours=1)
    assert delay <= timedelta(seconds=jitter)


# The oracle


# With each whether minute or hour begins with a star.
EXPRESSIONS: list[tuple[str, bool, Callable[[datetime], bool]]] = [
    ("30 2 * * *", False, lambda wall: (wall.hour, wall.minute) == (2, 30)),
    ("0 30 2 * * *", False, lambda wall: (wall.hour, wall.minute) == (2, 30)),
    ("0 0 * * *", False, lambda wall: (wall.hour, wall.minute) == (0, 0)),
    ("15,45 0-3 * * *", False, lambda wall: wall.hour <= 3 and wall.minute in (15, 45)),
    (
        "0 0 1,2,3 * * SUN,SAT *",
        False,
        lambda wall: wall.hour in (1, 2, 3) and wall.minute == 0 and wall.isoweekday() > 5,
    ),
    ("0 23 * * *", False, lambda wall: (wall.hour, wall.minute) == (23, 0)),
    ("*/15 * * * *", True, lambda wall: wall.minute % 15 == 0),
    ("0 */15 0-3 * * *", True, lambda wall: wall.hour <= 3 and wall.minute % 15 == 0),
    ("20 * * * *", True, lambda wall: wall.minute == 20),
    ("40 */2 * * *", True, lambda wall: wall.minute == 40 and wall.hour % 2 == 0),
]


def changes(zone: ZoneInfo, first: int, last: int) -> Iterator[datetime]:
    """The hours in which a zone's offset changes."""
    moment, end = datetime(first, 1, 1, tzinfo=UTC), datetime(last, 1, 1, tzinfo=UTC)
    offset = moment.astimezone(zone).utcoffset()
    while moment < end:
        if (moment + DAY).astimezone(zone).utcoffset() != offset:
            offset = (moment + DAY).astimezone(zone).utcoffset()
            yield moment
        moment += DAY


def walls(zone: ZoneInfo, first: datetime, last: datetime) -> list[tuple[datetime, datetime]]:
    """Each minute, with what the wall shows."""
    minutes = int((last - first) / MINUTE)
    moments = [first + MINUTE * number for number in range(minutes)]
    return [(moment, moment.astimezone(zone).replace(tzinfo=None, fold=0)) for moment in moments]


def oracle(
    minutes: list[tuple[datetime, datetime]], is_stepping: bool, matches: Callable[[datetime], bool]
) -> list[datetime]:
    """The rule, word by word."""
    found, seen = [], set()
    for (_, before), (moment, wall) in pairwise(minutes):
        skipped = [before + MINUTE * n for n in range(1, int((wall - before) / MINUTE))]
        is_new = wall not in seen
        seen.add(wall)
        is_due = matches(wall) and (is_stepping or is_new)
        if is_due or (not is_stepping and any(map(matches, skipped))):
            found.append(moment)
    return found


def assert_as_the_oracle_says(name: str, first_year: int, last_year: int) -> int:
    zone, count = ZoneInfo(name), 0
    for change in changes(zone, first_year, last_year):
        minutes = walls(zone, change - DAY, change + 2 * DAY)
        # From a day before on, so that the oracle has seen what may be repeated.
        start, end = minutes[600][0], minutes[-1][0]
        for expression, is_stepping, matches in EXPRESSIONS:
            expected = [moment for moment in oracle(minutes, is_stepping, matches) if moment > start]
            times = islice(Cron(expression, name).times_after(start), len(expected) + 1)
            assert [time for time in times if time <= end] == expected, (name, expression, change)
            count += len(expected)
    return count


SAMPLE = ["Europe/Berlin", "America/Santiago", "Australia/Lord_Howe", "Antarctica/Troll", "Africa/Casablanca"]


@pytest.mark.parametrize("zone", SAMPLE)
def test_cron_says_what_the_oracle_says(zone: str) -> None:
    """Around the clock changes of a few zones; `make clock-changes` goes through all of them."""
    assert assert_as_the_oracle_says(zone, 2026, 2028) > 0


@pytest.mark.long
@pytest.mark.parametrize("zone", sorted(available_timezones()))
def test_cron_says_what_the_oracle_says_everywhere(zone: str) -> None:
    assert_as_the_oracle_says(zone, 2015, 2040)
