"""Filters as tables: a text and a run in, yes or no out; a bad text in, the place and what would fit out."""

import pickle
import re
import string
from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta, timezone
from enum import IntEnum
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from perdure import BadFilter, BadInput, Status
from perdure.kernel.filters import (
    EVERYTHING,
    Filter,
    RunFields,
    all_of,
    any_of,
    attributes_of,
    bounds_of,
    conjuncts,
    fields_of,
    is_about_closed,
    matches,
    parse,
    required_values,
    to_text,
)
from perdure.kernel.filters.analysis import Bounds
from perdure.kernel.filters.evaluator import comparable_number, is_like
from perdure.kernel.filters.syntax import (
    FIELDS,
    Attribute,
    Compare,
    Constant,
    Contains,
    Field,
    In,
    IsNull,
    Like,
    Name,
    Not,
    NumberValue,
    PlainValue,
    TextValue,
    TimeValue,
    TruthValue,
    Value,
)

# 2026-01-31T12:00:00Z
NOON = 1_769_860_800_000
HOUR = 3_600_000

RUN = RunFields(
    id="o-17",
    run_id="01hz",
    workflow="checkout",
    status=Status.FAILED,
    queue="default",
    priority=5,
    step="packing",
    held=None,
    entity_id="npc-42",
    correlation_id=None,
    parent_id=None,
    error="ValueError: it's 100% wrong",
    created_at=NOON - HOUR,
    updated_at=NOON - HOUR // 2,
    closed_at=NOON - HOUR // 2,
    attributes={
        "tenant": "acme",
        "tier": 2,
        "ratio": 0.5,
        "whole": 3.0,
        "is_vip": True,
        "zero": 0,
        "large": 2**53 + 1,
        "huge": 10**30,
        "beyond": -(10**400),
        "tags": ["red", 7, True, None, 2.5],
        "none": [],
        "address": {"city": "Ulm"},
        "day": "2026-01-31",
        "status": "shipped",
        "in": "keyword",
        "order id": "x y",
        'quo"te': 1,
        "größe": "XL",
    },
)


def parsed(text: str, params: Mapping[str, object] | None = None) -> Filter:
    return parse(text, params, now=NOON)


# What matches

MATCHES: list[tuple[str, bool]] = [
    # all runs, and none
    ("true", True),
    ("TRUE", True),
    ("false", False),
    ("not false", True),
    ("(true)", True),
    ("true and id = 'o-17'", True),
    ("false or id = 'o-17'", True),
    # fields
    ("id = 'o-17'", True),
    ("id = 'O-17'", False),
    ("id != 'o-17'", False),
    ("run_id = '01hz' and workflow = 'checkout' and queue = 'default' and step = 'packing'", True),
    ("entity_id = 'npc-42'", True),
    ("error = 'ValueError: it''s 100% wrong'", True),
    ("workflow < 'd' and workflow >= 'checkout' and workflow > 'Z'", True),
    # statuses in any case
    ("status = 'failed'", True),
    ("status = 'FAILED'", True),
    ("status = 'Failed'", True),
    ("status != 'timed_out'", True),
    ("status in ('failed', 'TIMED_OUT')", True),
    ("status not in ('failed', 'TIMED_OUT')", False),
    ("status is not null", True),
    # numbers
    ("priority = 5", True),
    ("priority = 5.0", True),
    ("priority > 4.5 and priority < 5.5", True),
    ("priority >= -3", True),
    ("priority < 5e0", False),
    ("tier = 2", True),
    ("tier = 2.0", True),
    ("tier > 1.999 and tier <= 2", True),
    ("whole = 3", True),
    ("ratio = 5e-1", True),
    ("zero = -0.0", True),
    ("large = 9007199254740993", True),
    ("large = 9007199254740992", False),
    ("large = 9007199254740992.0", False),
    ("large > 9007199254740992.0", True),
    ("huge = 1000000000000000000000000000000", True),
    ("huge = 1e30", True),
    ("huge > 9223372036854775807", True),
    ("beyond < -1e308", True),
    ("beyond = -1e308", False),
    # as large as the largest there is, as in databases
    ("beyond = -1.7976931348623157e308", True),
    ("beyond < -1.7976931348623157e308", False),
    # types are not converted
    ("tier = '2'", False),
    ("tier != '2'", True),
    ("tier < '3'", False),
    ("not tier < '3'", True),
    ("tier >= '3'", False),
    ("tenant = 2", False),
    ("tenant > 2", False),
    ("is_vip = true", True),
    ("is_vip = TRUE", True),
    ("is_vip = false", False),
    ("is_vip = 1", False),
    ("is_vip > 0", False),
    ("is_vip != 1", True),
    ("zero = false", False),
    ("tier in ('2', true, 2)", True),
    ("tier in ('2', true)", False),
    ("tier not in ('2', true)", True),
    # null
    ("missing is null", True),
    ("missing is not null", False),
    ("missing = null", True),
    ("missing != null", False),
    ("tenant != null", True),
    ("missing = 'x'", False),
    ("missing != 'x'", True),
    ("missing < 1", False),
    ("not missing < 1", True),
    ("missing >= 1", False),
    ("missing in ('x', null)", True),
    ("missing in (null)", True),
    ("missing not in ('x', null)", False),
    ("tenant in ('x', null)", False),
    ("tenant in ('acme', null)", True),
    ("missing like '%'", False),
    ("missing contains 1", False),
    ("held is null and correlation_id = null and parent_id is null", True),
    ("held = 'paused'", False),
    ("held != 'paused'", True),
    ("closed_at is null", False),
    # times
    ("created_at > ago('2h')", True),
    ("created_at > ago('1h')", False),
    ("created_at >= ago('1h')", True),
    ("created_at = ago('60m')", True),
    ("created_at = AGO('60 MIN')", True),
    ("created_at = ago('0h3600s0ms')", True),
    ("created_at = ago('0.5h 30m')", True),
    ("created_at = ago('3600')", True),
    ("created_at = ago(3600)", True),
    ("created_at < ago('1h30m')", False),
    ("created_at > ago('1w2d')", True),
    ("created_at = '2026-01-31T11:00:00Z'", True),
    ("created_at = '2026-01-31t11:00z'", True),
    ("created_at = '2026-01-31 11:00'", True),
    ("created_at = '2026-01-31T12:30:00+01:30'", True),
    ("created_at = '2026-01-31T06:00:00.000-0500'", True),
    ("created_at = '2026-01-31T06:00:00-05'", True),
    ("created_at = '2026-01-31T11:00:00.0009999Z'", True),
    ("created_at = '2026-01-31T11:00:00.001Z'", False),
    ("created_at > '2026-01-31'", True),
    ("created_at < '2026-02-01'", True),
    ("created_at > '1969-12-31T23:59:59.999Z'", True),
    ("created_at in ('2026-01-30', '2026-01-31T11:00:00Z')", True),
    ("closed_at > '2026-01-31' and closed_at < ago('29m')", True),
    ("day = '2026-01-31'", True),
    ("day < '2026-02'", True),
    # like
    ("id like 'o-%'", True),
    ("id like 'O-%'", False),
    ("id like 'o-__'", True),
    ("id like 'o-_'", False),
    ("id like '%17'", True),
    ("id not like '%18'", True),
    ("error like '%100\\%%'", False),
    ("error like '%it''s%'", True),
    ("tier like '%'", False),
    ("tenant like '%'", True),
    ("tenant like ''", False),
    # lists
    ("tags contains 'red'", True),
    ("tags contains 'Red'", False),
    ("tags contains 7", True),
    ("tags contains 7.0", True),
    ("tags contains '7'", False),
    ("tags contains true", True),
    ("tags contains 1", False),
    ("tags contains 2.5", True),
    ("tags not contains 'blue'", True),
    ("none contains 'red'", False),
    ("none is null", False),
    ("tenant contains 'acme'", False),
    ("tags = 'red'", False),
    ("tags != 'red'", True),
    ("tags is null", False),
    ("address is not null", True),
    ("address contains 'city'", False),
    ("address = 'Ulm'", False),
    # names
    ("attributes.status = 'shipped'", True),
    ("attributes.tenant = 'acme'", True),
    ("attributes . tenant = 'acme'", True),
    ("attributes.in = 'keyword'", True),
    ("attributes.In is null", True),
    ("attributes.\"order id\" = 'x y'", True),
    ('attributes."quo""te" = 1', True),
    ('attributes."tier" = 2', True),
    ("größe = 'XL'", True),
    ("Tenant is null", True),
    ("ago is null", True),
    ("attributes is null", True),
    # what joins them
    ("id = 'x' or id = 'o-17'", True),
    ("id = 'x' and id = 'x' or id = 'o-17'", True),
    ("id = 'o-17' or id = 'x' and id = 'x'", True),
    ("(id = 'o-17' or id = 'x') and id = 'x'", False),
    ("not id = 'x' and id = 'o-17'", True),
    ("not (id = 'x' and id = 'o-17')", True),
    ("not not id = 'o-17'", True),
    ("NOT (id = 'x') AND tier Is Not NULL And tags CONTAINS 7 Or false", True),
    ("\n id\t=\r\n'o-17' ", True),
    ("id='o-17'and(tier=2)", True),
]


@pytest.mark.parametrize(("text", "is_match"), MATCHES)
def test_a_filter_matches_or_not(text: str, *, is_match: bool) -> None:
    assert matches(parsed(text), RUN) is is_match


class Level(IntEnum):
    GOLD = 2


PARAMETERS: list[tuple[str, dict[str, object], bool]] = [
    ("tenant = :tenant", {"tenant": "acme"}, True),
    ("tenant = :tenant", {"tenant": "x' or true or id = '"}, False),
    ("status = :s", {"s": Status.FAILED}, True),
    ("status = :s", {"s": "failed"}, True),
    ("tier = :t", {"t": Level.GOLD}, True),
    ("tier = :t and tier >= :t", {"t": 2}, True),
    ("is_vip = :v", {"v": True}, True),
    ("is_vip = :v", {"v": 1}, False),
    ("missing = :m", {"m": None}, True),
    ("huge = :h", {"h": 10**30}, True),
    ("created_at >= :since", {"since": datetime(2026, 1, 31, 11, tzinfo=UTC)}, True),
    ("created_at = :at", {"at": datetime(2026, 1, 31, 13, tzinfo=timezone(timedelta(hours=2)))}, True),
    ("created_at = :at", {"at": datetime(2026, 1, 31, 11, 0, 0, 999, tzinfo=UTC)}, True),
    ("created_at > :day", {"day": date(2026, 1, 31)}, True),
    ("created_at > :day", {"day": "2026-02-01"}, False),
    ("created_at > ago(:span)", {"span": timedelta(hours=2)}, True),
    ("created_at > ago(:span)", {"span": "30m"}, False),
    ("created_at > ago(:span)", {"span": 7200}, True),
    ("id like :pattern", {"pattern": "o%"}, True),
    ("tags contains :tag", {"tag": 7}, True),
    ("tier in (:a, :b, 3)", {"a": 1, "b": 2}, True),
    ("true", {}, True),
]


@pytest.mark.parametrize(("text", "params", "is_match"), PARAMETERS)
def test_a_parameter_stands_for_its_value(text: str, params: dict[str, object], *, is_match: bool) -> None:
    """Whatever is in it, it is a value, and never a part of the filter."""
    assert matches(parsed(text, params), RUN) is is_match


# What is refused; the ^ shows where

REFUSED: list[tuple[str, str]] = [
    ("^", "empty; write `true`"),
    ("^  \n ", "empty"),
    ("^!", "write !="),
    ("a = ^'x", "no closing '"),
    ("a = ^'x''", "no closing '"),
    ("a = ^'x''y", "no closing '"),
    ('attributes.^"x = 1', 'no closing "'),
    ("a = ^:", "such as :tenant"),
    ("a = ^: b", "such as :tenant"),
    ("a^; drop table runs", "';' means nothing here"),
    ("a = 1 ^-- b", "means nothing here"),
    ("order^-id = 3", "means nothing here"),
    ("a = ^- 1", "means nothing here"),
    ("a = ^+1", "means nothing here"),
    ("a = ^\x00", "zero character"),
    ("a = '^\ud800'", "surrogate"),
    # what stands where
    ("^= 1", "name of a field or an attribute"),
    ("^'o-17' = id", "name of a field"),
    ("^5 > priority", "name of a field"),
    ("^null", "name of a field"),
    ("^:x = id", "name of a field"),
    ("a^", "after a name =, !="),
    ("a ^and b = 1", "after a name"),
    ("a ^1", "after a name"),
    ("a ^== 1", "write = for equal"),
    ("a ^<> 1", "!= for unequal"),
    ("a not ^= 1", "after a name"),
    ("a =^", "a value would fit here, not the end"),
    ("status = ^failed", "in single quotes: 'failed'"),
    ('status = ^"failed"', "not in double ones"),
    ("created_at = ^updated_at", "a value would fit here"),
    ("a = ^= 1", "a value would fit"),
    ("a = ^(1)", "a value would fit"),
    ("a = 1 ^b = 2", "`and`, `or` or the end"),
    ("a = 1^)", "`and`, `or` or the end"),
    ("a = 12^_3", "`and`, `or` or the end"),
    ("a = 1 and^", "name of a field or an attribute would fit here, not the end"),
    ("not^", "name of a field"),
    ("(a = 1^", "closing )"),
    ("(^)", "name of a field"),
    ("a in ^1", "opening ("),
    ("a in (^)", "a value would fit here"),
    ("a in (1 ^2)", "a comma or a closing )"),
    ("a in (1,^)", "a value would fit"),
    ("a is ^true", "`null` or `not null`"),
    ("a is not ^1", "`null` would fit"),
    ("^customer.name = 'x'", "only `attributes` has a dot"),
    ("attributes.^'x' = 1", "name of an attribute"),
    ('attributes.^"" = 1', "name of an attribute"),
    ("attributes.a^.b = 1", "after a name"),
    ("^Status = 'failed'", "the field is called status; the attribute is attributes.Status"),
    ("^workflow_id = 'o-17'", "the field is called id"),
    # types
    ("status = ^'faild'", "did you mean 'failed'?"),
    ("status != ^'Time out'", "did you mean 'timed_out'?"),
    ("status in ('failed', ^'qqq')", "a status: 'pending', 'running'"),
    ("status = ^'held'", "write held is not null"),
    ("status = ^3", "a status: 'pending'"),
    ("status ^< 'failed'", "no order"),
    ("status ^like 'f%'", "like is for text"),
    ("priority = ^'5'", "compared with a number, not with the text '5'"),
    ("priority > ^'5'", "compared with a number"),
    ("priority in (1, ^true)", "compared with a number, not with true"),
    ("priority ^like '5'", "like is for text"),
    ("priority > ^ago('1h')", "not with a time"),
    ("id = ^17", "compared with text, such as 'o-17', not with the number 17"),
    ("id = ^true", "compared with text"),
    ("id > ^ago('1h')", "not with a time"),
    ("id ^contains 'o'", "contains is for attributes that are lists"),
    ("id like ^17", "like takes a text"),
    ("id like ^null", "like takes a text"),
    ("tags contains ^null", "contains takes text, a number, true or false"),
    ("tags contains ^ago('1h')", "contains takes text"),
    ("tenant > ^ago('1h')", "attributes hold no times"),
    ("tier < ^null", "`is null`"),
    ("priority >= ^null", "`is null`"),
    ("is_vip > ^false", "no order"),
    ("tier = ^1e999", "too large"),
    ("tier = ^" + "9" * 400, "too large"),
    # times
    ("created_at > ^'yesterday'", "'yesterday' is no time; write '2026-01-31'"),
    ("created_at > ^''", "is no time"),
    ("created_at > ^5", "compared with a time"),
    ("created_at > ^'2026-02-30'", "out of range"),
    ("created_at > ^'2026-13-01'", "is no time"),
    ("created_at > ^'2026-01-01T24:00:00Z'", "is no time"),
    ("created_at > ^'2026-01-01T10:00:00+01:60'", "59 minutes"),
    ("created_at > ^'2026-01-01T10:00:00+24:00'", "is no time"),
    ("created_at > ^'2026-01-01T10'", "is no time"),
    ("created_at > ^'20260101'", "is no time"),
    ("created_at > ^'2026-W05-6'", "is no time"),
    ("created_at > ^' 2026-01-01'", "is no time"),
    ("created_at > ^'2026-01-01T10:00:00Z'''", "is no time"),
    ("created_at > ^'٢٠٢٦-01-01'", "is no time"),
    ("created_at > ^'0000-01-01'", "is no time"),
    ("created_at > ^'0001-01-01T00:00:00+14:00'", "years 1 to 9999"),
    ("created_at > ^'9999-12-31T23:59:59-14:00'", "years 1 to 9999"),
    ("created_at ^like '2026%'", "like is for text"),
    # functions
    ("created_at > ^now()", "no function now()"),
    ("^lower(id) = 'x'", "no function lower()"),
    ("^ago('1h') < created_at", "a name comes first"),
    ("created_at > ^ago", "a value would fit"),
    ("created_at > ago(^2h)", "a duration stands in single quotes: ago('2h')"),
    ("created_at > ago(^1h30m)", "a duration stands in single quotes: ago('1h30m')"),
    ("created_at > ago(^)", "a duration such as '1h30m'"),
    ("created_at > ago(^ago('1h'))", "a duration such as '1h30m'"),
    ("created_at > ago(^null)", "a duration such as '1h30m'"),
    ("created_at > ago('1h'^, '2h')", "closing )"),
    ("created_at > ago(^'soon')", "write ago('30s')"),
    ("created_at > ago(^'')", "write ago('30s')"),
    ("created_at > ago(^'1h x')", "write ago('30s')"),
    ("created_at > ago(^'1y')", "write ago('30s')"),
    ("created_at > ago(^'-1h')", "write ago('30s')"),
    ("created_at > ago(^'52200w')", "0 to 1000 years"),
    ("created_at > ago(^-1)", "0 to 1000 years"),
    ("created_at > ago(^1e300)", "0 to 1000 years"),
    ("created_at > ago(^'" + "1h" * 26 + "')", "write ago('30s')"),
    # limits
    ("id = '" + "x" * 3994 + "^'", "more than 4,000 characters"),
    (" or ".join(["a = 1"] * 100) + " or ^a = 1", "more than 100 conditions"),
    ("(" * 20 + "^(true)" + ")" * 20, "more than 20 levels"),
    ("not " * 20 + "^not true", "more than 20 levels"),
    # parameters
    ("a = ^:x", "the parameter 'x' is missing (given: none)"),
]


@pytest.mark.parametrize(("marked", "trouble"), REFUSED, ids=[marked[:40] for marked, _ in REFUSED])
def test_a_bad_filter_shows_the_place_and_what_would_fit(marked: str, trouble: str) -> None:
    with pytest.raises(BadFilter) as refused:
        parsed(marked.replace("^", "", 1))
    assert trouble in refused.value.trouble
    assert refused.value.position == marked.index("^")


BAD_PARAMETERS: list[tuple[str, dict[str, object], str]] = [
    ("a = ^:x", {"y": 1}, "'x' is missing (given: y)"),
    ("a = ^:x", {"X": 1}, "'x' is missing (given: X)"),
    ("a = 1^", {"x": 1}, "'x' is given and stands nowhere"),
    ("a = :y^", {"x": 1, "y": 1}, "'x' is given and stands nowhere"),
    ("a = ^:x", {"x": [1]}, "of type list; give text"),
    ("a = ^:x", {"x": b"a"}, "of type bytes"),
    ("a = ^:x", {"x": float("nan")}, "not a number"),
    ("a = ^:x", {"x": float("inf")}, "too large"),
    ("a = ^:x", {"x": 10**5000}, "too large"),
    ("a = ^:x", {"x": "x" * 4001}, "4,001 characters"),
    ("a = ^:x", {"x": "\x00"}, "zero character"),
    ("a = ^:x", {"x": "\udfff"}, "surrogate"),
    ("a = ^:x", {"x": timedelta(1)}, "only in ago()"),
    ("a = ^:x", {"x": datetime(2026, 1, 1, tzinfo=UTC)}, "attributes hold no times"),
    ("created_at = ^:x", {"x": datetime(2026, 1, 1)}, "no time zone"),  # noqa: DTZ001 - it is what is tried
    ("created_at = ^:x", {"x": "soon"}, "'soon' is no time"),
    ("created_at = ^:x", {"x": 1_769_860_800_000}, "compared with a time"),
    ("created_at > ^:x", {"x": None}, "`is null`"),
    ("created_at > ago(^:x)", {"x": timedelta(-1)}, "0 to 1000 years"),
    ("created_at > ago(^:x)", {"x": True}, "ago() takes a duration"),
    ("created_at > ago(^:x)", {"x": None}, "ago() takes a duration"),
    ("priority = ^:x", {"x": "5"}, "compared with a number"),
    ("status = ^:x", {"x": "faild"}, "did you mean 'failed'?"),
]


@pytest.mark.parametrize(("marked", "params", "trouble"), BAD_PARAMETERS)
def test_a_bad_parameter_is_shown_where_it_stands(marked: str, params: dict[str, object], trouble: str) -> None:
    with pytest.raises(BadFilter) as refused:
        parsed(marked.replace("^", "", 1), params)
    assert trouble in refused.value.trouble
    assert refused.value.position == marked.index("^")


WRONG_TYPES: list[tuple[Any, Any]] = [(None, None), (b"true", None), (3, None), ("true", ["x"]), ("true", "x")]


@pytest.mark.parametrize(("text", "params"), WRONG_TYPES)
def test_what_is_no_text_and_no_dict_is_refused(text: Any, params: Any) -> None:
    with pytest.raises(BadFilter):
        parsed(text, params)


LIMITS = [
    "id = '" + "x" * 3993 + "'",
    " or ".join(["a = 1"] * 100),
    "(" * 20 + "true" + ")" * 20,
    "not " * 20 + "true",
    "a in (" + ", ".join(["1"] * 1300) + ")",
    " and ".join(["(not (a = 1))"] * 100),
]


@pytest.mark.parametrize("text", LIMITS, ids=[text[:20] for text in LIMITS])
def test_a_filter_may_be_as_large_as_the_limits_say(text: str) -> None:
    assert isinstance(matches(parsed(text), RUN), bool)


def test_the_error_draws_a_caret_below_the_place() -> None:
    with pytest.raises(BadFilter) as refused:
        parsed("tier = 2\nand status = 'faild'")
    assert str(refused.value).splitlines() == [
        "bad filter, at character 23: 'faild' is no status; did you mean 'failed'?",
        "  tier = 2 and status = 'faild'",
        "                        ^",
    ]


def test_the_error_of_a_long_filter_shows_what_is_around_the_place() -> None:
    text = "tier in (" + "1, " * 400 + "x" + ", 1" * 400 + ")"
    with pytest.raises(BadFilter) as refused:
        parsed(text)
    _, shown, caret = str(refused.value).splitlines()
    assert len(shown) < 120
    assert (shown[2], shown[-1], shown[caret.index("^")]) == ("…", "…", "x")


def test_the_error_travels_between_processes() -> None:
    error = BadFilter("a", 1, "no")
    copy = pickle.loads(pickle.dumps(error))
    assert (copy.text, copy.position, copy.trouble, str(copy)) == ("a", 1, "no", str(error))
    assert isinstance(copy, BadInput)


# The shape of a filter

SHAPES: list[tuple[str, Filter]] = [
    ("a != 1", Not(Compare(Attribute("a"), "=", NumberValue(1)))),
    ("not a = 1", Not(Compare(Attribute("a"), "=", NumberValue(1)))),
    ("a not in (1)", Not(In(Attribute("a"), (NumberValue(1),)))),
    ("a = null", IsNull(Attribute("a"))),
    ("a is not null", Not(IsNull(Attribute("a")))),
    ("a in (1, null)", any_of([In(Attribute("a"), (NumberValue(1),)), IsNull(Attribute("a"))])),
    ("status = 'failed'", Compare(Field("status"), "=", TextValue("FAILED"))),
    ("created_at > ago('1h')", Compare(Field("created_at"), ">", TimeValue(NOON - HOUR))),
    ("(true)", EVERYTHING),
    ("a is null and (b is null and c is null)", all_of(map(IsNull, map(Attribute, "abc")))),
    ("(a is null or b is null) or c is null", any_of(map(IsNull, map(Attribute, "abc")))),
    ("true and a is null", IsNull(Attribute("a"))),
]


@pytest.mark.parametrize(("text", "shape"), SHAPES)
def test_there_is_one_shape_for_each_meaning(text: str, shape: Filter) -> None:
    assert parsed(text) == shape


def test_filters_are_joined_without_empty_parts() -> None:
    a, b = IsNull(Attribute("a")), IsNull(Attribute("b"))
    assert (all_of([]), all_of([EVERYTHING, a]), any_of([]), any_of([a])) == (EVERYTHING, a, Constant(False), a)
    assert all_of([all_of([a, b]), EVERYTHING, b]) == all_of([a, b, b])


# What a filter tells beforehand

CLOSED: list[tuple[str, bool]] = [
    ("true", False),
    ("status = 'running'", False),
    ("status = 'failed'", True),
    ("tenant = 'acme' and (tier = 1 or status in ('running', 'completed'))", True),
    ("status != 'failed'", False),
    ("status not in ('failed', 'completed')", False),
    ("not status != 'failed'", True),
    ("closed_at > ago('1h')", True),
    ("closed_at is not null", True),
    ("closed_at is null", False),
    ("attributes.status = 'failed'", False),
]


@pytest.mark.parametrize(("text", "is_closed"), CLOSED)
def test_a_filter_that_names_a_closed_status_wants_closed_runs(text: str, *, is_closed: bool) -> None:
    assert is_about_closed(parsed(text)) is is_closed


def test_the_names_that_a_filter_uses() -> None:
    found = parsed("status = 'failed' and not (tier > 2 or attributes.id is null) and tags contains 1 or false")
    assert fields_of(found) == {"status"}
    assert attributes_of(found) == {"tier", "id", "tags"}


A, ID, STATUS = Attribute("a"), Field("id"), Field("status")
REQUIRED: list[tuple[str, dict[Name, tuple[Value, ...]]]] = [
    ("true", {}),
    ("a = 1", {A: (NumberValue(1),)}),
    ("a != 1", {}),
    ("a > 1", {}),
    ("a in (1, null)", {}),
    ("a = 1 and id = 'x' and tier > 2", {A: (NumberValue(1),), ID: (TextValue("x"),)}),
    ("a in (1, 2) and a = 2", {A: (NumberValue(2),)}),
    ("a = 1 or a = 2", {A: (NumberValue(1), NumberValue(2))}),
    ("a = 1 or id = 'x'", {}),
    ("(a = 1 and id = 'x') or (a in (1, 2) and tier = 3)", {A: (NumberValue(1), NumberValue(2))}),
    ("not (a = 1)", {}),
    ("status in ('failed', 'timed_out')", {STATUS: (TextValue("FAILED"), TextValue("TIMED_OUT"))}),
]


@pytest.mark.parametrize(("text", "expected"), REQUIRED)
def test_the_values_that_every_match_has(text: str, expected: dict[Name, tuple[Value, ...]]) -> None:
    assert required_values(parsed(text)) == expected


BOUNDS: list[tuple[str, Bounds]] = [
    ("true", Bounds()),
    ("created_at > ago('1h')", Bounds(NOON - HOUR + 1, None)),
    ("created_at >= ago('1h') and created_at < ago('0s') and a = 1", Bounds(NOON - HOUR, NOON - 1)),
    ("created_at = ago('1h')", Bounds(NOON - HOUR, NOON - HOUR)),
    ("created_at in (ago('1h'), ago('0s'))", Bounds(NOON - HOUR, NOON)),
    ("created_at > ago('1h') or created_at > ago('2h')", Bounds(NOON - 2 * HOUR + 1, None)),
    ("created_at > ago('1h') or a = 1", Bounds()),
    ("not created_at > ago('1h')", Bounds()),
    ("updated_at > ago('1h')", Bounds()),
]


@pytest.mark.parametrize(("text", "expected"), BOUNDS)
def test_the_moments_between_which_every_match_lies(text: str, expected: Bounds) -> None:
    assert bounds_of(parsed(text), "created_at") == expected


# Laws

words = st.text(string.ascii_letters + "_-'\"%é漢\U0001f600 ", max_size=4)
names = st.sampled_from(["a", "b", "In", "status", "Status", "workflow_id", "odd name", 'q"', "attributes", "größe"])
numbers = st.one_of(
    st.integers(-3, 3),
    st.integers(-(2**70), 2**70),
    st.sampled_from([2**53, 2**53 + 1, float(2**53), 2**63 - 1, 2**63, -(2**63)]),
    st.floats(allow_nan=False, allow_infinity=False),
)
moments = st.integers(NOON - 3, NOON + 3) | st.integers(-62_135_596_800_000, 253_402_300_799_999)
plain: st.SearchStrategy[PlainValue] = st.one_of(
    words.map(TextValue), numbers.map(comparable_number).map(NumberValue), st.booleans().map(TruthValue)
)
ordered: st.SearchStrategy[Value] = st.one_of(words.map(TextValue), numbers.map(comparable_number).map(NumberValue))
operators = st.sampled_from(["<", "<=", ">", ">="])
attributes = names.map(Attribute)
statuses = st.sampled_from(sorted(Status)).map(str).map(TextValue)
BY_KIND: dict[str, st.SearchStrategy[Value]] = {
    "text": words.map(TextValue),
    "number": numbers.map(comparable_number).map(NumberValue),
    "time": moments.map(TimeValue),
    "status": statuses,
}


def fields(*kinds: str) -> st.SearchStrategy[Field]:
    return st.sampled_from([Field(name) for name, kind in FIELDS.items() if kind in kinds])


@st.composite
def field_conditions(draw: st.DrawFn) -> Filter:
    name = draw(fields("text", "number", "time", "status"))
    kind = FIELDS[name.name]
    values = BY_KIND[kind]
    choices: list[st.SearchStrategy[Filter]] = [
        st.builds(Compare, st.just(name), st.just("="), values),
        st.builds(In, st.just(name), st.lists(values, min_size=1, max_size=3).map(tuple)),
        st.just(IsNull(name)),
    ]
    if kind != "status":
        choices.append(st.builds(Compare, st.just(name), operators, values))
    if kind == "text":
        choices.append(st.builds(Like, st.just(name), words))
    return draw(st.one_of(choices))


conditions: st.SearchStrategy[Filter] = st.one_of(
    field_conditions(),
    st.builds(Compare, attributes, st.just("="), plain),
    st.builds(Compare, attributes, operators, ordered),
    st.builds(In, attributes, st.lists(plain, min_size=1, max_size=3).map(tuple)),
    st.builds(Like, attributes, words),
    st.builds(Contains, attributes, plain),
    st.builds(IsNull, attributes),
    st.builds(Constant, st.booleans()),
)
filters: st.SearchStrategy[Filter] = st.recursive(
    conditions,
    lambda inner: st.one_of(
        st.builds(Not, inner),
        st.lists(inner, min_size=2, max_size=3).map(all_of),
        st.lists(inner, min_size=2, max_size=3).map(any_of),
    ),
    max_leaves=8,
)
json_values = st.one_of(st.none(), words, numbers, st.booleans(), st.lists(words | numbers | st.booleans(), max_size=3))
maybe_words = st.none() | words
runs = st.builds(
    RunFields,
    id=words,
    run_id=words,
    workflow=words,
    status=st.sampled_from(Status),
    queue=words,
    priority=st.integers(-3, 3),
    step=maybe_words,
    held=maybe_words,
    entity_id=maybe_words,
    correlation_id=maybe_words,
    parent_id=maybe_words,
    error=maybe_words,
    created_at=moments,
    updated_at=moments,
    closed_at=st.none() | moments,
    attributes=st.dictionaries(names, json_values),
)
PIECES = (
    *("status", "id", "tier", "created_at", "priority", "attributes", "tags", "Status", "größe", "ago", "now"),
    *("and", "OR", "not", "in", "like", "contains", "is", "null", "true", "FALSE", "(", ")", ",", ".", "=", "!=", "<"),
    *(">=", "==", "'", '"', "'x'", "'failed'", "'2026-01-31'", "'1h'", '"odd"', ":p", ":q", ":", "1", "-2.5", "1e9"),
    *("e", "-", "!", ";", "\\", "\n", "\x00", "ago('1h')", "status = 'failed'", "tier >= 2", "漢", "\ud800"),
)


@given(st.text(), st.dictionaries(st.sampled_from(["p", "q"]), json_values))
def test_any_text_is_a_filter_or_a_bad_one(text: str, params: dict[str, object]) -> None:
    try_out(text, params)


@given(st.lists(st.sampled_from(PIECES)).map(" ".join) | st.lists(st.sampled_from(PIECES)).map("".join))
@example("created_at > " + "ago(" * 900)
@example("'" * 3999)
@example("(" * 4000)
@example("-" + "9" * 3998)
@example("a = " + "9" * 3990)
def test_any_pieces_are_a_filter_or_a_bad_one(text: str) -> None:
    try_out(text, {"p": 1} if ":p" in text else {})


@given(st.sampled_from([*FIELDS, "tier"]), st.sampled_from(["=", "<", "in (:p)", "like", "contains"]), st.data())
def test_any_parameter_fits_or_is_refused(name: str, operator: str, data: st.DataObject) -> None:
    anything = json_values | st.text() | st.datetimes() | st.timedeltas() | st.integers() | st.floats() | st.binary()
    aware = st.datetimes(
        timezones=st.sampled_from([UTC, timezone(timedelta(hours=14)), timezone(-timedelta(hours=14))])
    )
    text = f"{name} {operator}" if ":p" in operator else f"{name} {operator} :p"
    try_out(text, {"p": data.draw(anything | aware)})
    try_out(f"{name} {operator} ago(:p)", {"p": data.draw(anything)})


def try_out(text: str, params: dict[str, object]) -> None:
    """A filter that can be read, evaluated, analysed and written; or BadFilter with a place within the text."""
    found = parsed_or_refused(text, params)
    if isinstance(found, BadFilter):
        assert 0 <= found.position <= len(text)
        assert found.trouble in str(found)
    else:
        assert isinstance(matches(found, RUN), bool)
        assert parsed(to_text(found)) == found


def parsed_or_refused(text: str, params: dict[str, object]) -> Filter | BadFilter:
    try:
        return parsed(text, params)
    except BadFilter as error:
        return error


@given(filters)
def test_a_filter_that_is_written_reads_the_same(found: Filter) -> None:
    assert parsed(to_text(found)) == found


@given(filters, filters, runs)
def test_and_or_not_are_those_of_logic(one: Filter, other: Filter, run: RunFields) -> None:
    is_one, is_other = matches(one, run), matches(other, run)
    assert matches(Not(one), run) is not is_one
    assert matches(Not(Not(one)), run) is is_one
    assert matches(all_of([one, other]), run) is (is_one and is_other)
    assert matches(any_of([one, other]), run) is (is_one or is_other)
    assert matches(Not(all_of([one, other])), run) is matches(any_of([Not(one), Not(other)]), run)
    assert matches(Not(any_of([one, other])), run) is matches(all_of([Not(one), Not(other)]), run)


@given(names, plain, runs)
def test_unequal_is_the_opposite_of_equal(name: str, value: PlainValue, run: RunFields) -> None:
    equal = to_text(Compare(Attribute(name), "=", value))
    unequal = to_text(Not(Compare(Attribute(name), "=", value)))
    assert " != " in unequal
    assert matches(parsed(equal), run) is not matches(parsed(unequal), run)


@given(names, ordered, runs)
def test_values_of_one_type_are_less_equal_or_greater(name: str, value: Value, run: RunFields) -> None:
    """And those of another type nothing of it."""
    less, equal, greater = (matches(Compare(Attribute(name), sign, value), run) for sign in ("<", "=", ">"))
    is_same = parsed_kind(run.attributes.get(name)) is type(value)
    assert less + equal + greater == is_same
    assert matches(Compare(Attribute(name), "<=", value), run) is (less or equal)
    assert matches(Compare(Attribute(name), ">=", value), run) is (greater or equal)


def parsed_kind(found: object) -> type | None:
    kinds: dict[type, type] = {str: TextValue, int: NumberValue, float: NumberValue, bool: TruthValue}
    return kinds.get(type(found))


@given(filters, runs)
def test_what_is_told_beforehand_holds_for_every_match(found: Filter, run: RunFields) -> None:
    if not matches(found, run):
        return
    assert all(matches(part, run) for part in conjuncts(found))
    assert all(matches(In(name, values), run) for name, values in required_values(found).items())
    bounds = bounds_of(found, "created_at")
    assert bounds.earliest is None or bounds.earliest <= run.created_at
    assert bounds.latest is None or bounds.latest >= run.created_at


@given(filters, runs)
def test_only_the_names_that_are_told_matter(found: Filter, run: RunFields) -> None:
    kept = {name: value for name, value in run.attributes.items() if name in attributes_of(found)}
    others = {name: getattr(RUN, name) for name in FIELDS if name not in fields_of(found)}
    assert matches(found, msgspec.structs.replace(run, attributes=kept, **others)) is matches(found, run)


LIKE: list[tuple[str, str, bool]] = [
    ("", "", True),
    ("", "%", True),
    ("", "%%", True),
    ("", "_", False),
    ("a", "", False),
    ("a", "_", True),
    ("a", "%_%", True),
    ("a", "_%_", False),
    ("ab", "_%_", True),
    ("abc", "a%c", True),
    ("abc", "a%b", False),
    ("aba", "ab%ba", False),
    ("a\nb", "a_b", True),
    ("a\nb", "a%b", True),
    ("A", "a", False),
    ("\U0001f600", "_", True),
    ("a.c", "a.c", True),
    ("abc", "a.c", False),
    ("a[b]*c", "a[b]*c", True),
    ("xaybxazb", "%a_b", True),
    ("xaybxazc", "%a_b%a_c", True),
    ("xayb", "%a_b%a_b", False),
]


@pytest.mark.parametrize(("text", "pattern", "is_fitting"), LIKE)
def test_patterns(text: str, pattern: str, *, is_fitting: bool) -> None:
    assert is_like(text, pattern) is is_fitting


@given(st.text("ab", max_size=12), st.text("ab%_", max_size=8))
def test_a_pattern_fits_what_a_regular_expression_fits(text: str, pattern: str) -> None:
    expression = "".join({"%": ".*", "_": "."}.get(each, re.escape(each)) for each in pattern)
    assert is_like(text, pattern) is (re.fullmatch(expression, text, re.DOTALL) is not None)


def test_a_pattern_with_a_million_ways_to_fail_is_answered() -> None:
    """A matcher that tries them one after the other would not come back."""
    assert not is_like("a" * 16_000, "%" + "a_%" * 1000 + "b")
    assert not is_like("a" * 16_000, "%" + "a_" * 1900 + "b%")
