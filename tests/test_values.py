"""Values: what is written comes back as it was, type and all, or is refused where it is made."""

import asyncio
import enum
import functools
import math
import random
import types
from collections import Counter, OrderedDict, defaultdict, deque, namedtuple
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import InitVar, dataclass, field
from datetime import UTC, date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from fractions import Fraction
from ipaddress import IPv4Address, IPv6Network
from pathlib import Path, PurePosixPath
from typing import (
    Annotated,
    Any,
    AnyStr,
    ClassVar,
    Generic,
    Literal,
    LiteralString,
    NamedTuple,
    NewType,
    NotRequired,
    Optional,
    Required,
    TypedDict,
    TypeVar,
    Union,
)
from uuid import UUID
from zoneinfo import ZoneInfo

import msgspec
import pydantic
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, RootModel, SecretStr

from perdure import BadOption, BadValue, Signal, ValueTooLarge, activity, workflow
from perdure.codec import ValueType
from perdure.codec.roundtrip import difference
from perdure.codec.roundtrip_bulk import are_alike
from perdure.testing import Environment

T = TypeVar("T")
Number = TypeVar("Number", int, date)
OrderId = NewType("OrderId", str)
Day = NewType("Day", date)
Json = dict[str, Any]


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Size(enum.StrEnum):
    SMALL = "small"


class Right(enum.Flag):
    READ = 1
    WRITE = 2


class Odd(enum.Enum):
    HALF = 0.5
    PAIR = (1, 2)


@dataclass
class Point:
    x: int
    y: float = 0.5
    tags: list[str] = field(default_factory=list)


@dataclass
class Point3(Point):
    z: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Frozen:
    at: datetime
    colour: Colour = Colour.RED
    unit: ClassVar[str] = "m"


@dataclass
class Box(Generic[T]):
    content: T
    inner: "Box[T] | None" = None


@dataclass
class Counted:
    """Has a field that its constructor does not take, and an attribute that is made of the fields."""

    items: list[int]
    total: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self.longest = len(self.items)

    @functools.cached_property
    def mean(self) -> float:
        return sum(self.items) / len(self.items)


@dataclass
class Salted:
    x: int
    salt: InitVar[int] = 3

    def __post_init__(self, salt: int) -> None:
        self.x += salt


@dataclass
class Growing:
    """Does not come back the same, since making it changes it."""

    x: int

    def __post_init__(self) -> None:
        self.x += 1


@dataclass
class Forgetful:
    x: int

    def remember(self, word: str) -> "Forgetful":
        self.word = word
        return self


@dataclass
class Restless:
    x: int

    def __post_init__(self) -> None:
        self.mood = random.Random().random()  # perdure: ok


@dataclass
class Loose:
    what: Any
    others: object = None


@dataclass(eq=False)
class Nameless:
    x: int


@dataclass
class Liar:
    x: int

    def __eq__(self, other: object) -> bool:
        return False

    __hash__ = None  # type: ignore[assignment]  # what Python does itself


@dataclass(frozen=True)
class Hashed:
    x: int


@dataclass
class Cat:
    name: str


@dataclass
class Dog:
    name: str
    breed: str = "mixed"


@dataclass
class Keeper:
    """Has a field whose type JSON alone does not tell."""

    pet: Cat | Dog
    since: datetime | str = "ever"
    friends: "list[Keeper]" = field(default_factory=list)


@dataclass
class Plane:
    name: "Unheard"  # type: ignore[name-defined]  # noqa: F821 - on purpose


class Struct(msgspec.Struct):
    body: bytes
    at: date | None = None


class Sub(Struct):
    more: int = 0


class FrozenStruct(msgspec.Struct, frozen=True, rename="camel"):
    first_name: str
    nick: str | msgspec.UnsetType = msgspec.UNSET


class Card(msgspec.Struct, tag=True):
    number: str


class Cash(msgspec.Struct, tag="cash"):
    cents: int


class Holder(msgspec.Struct, Generic[T]):
    held: T


class Pair(NamedTuple):
    left: int
    right: str = "r"


Loosely = namedtuple("Loosely", "a b")  # noqa: PYI024 - without types, on purpose


class Movie(TypedDict):
    title: str
    year: NotRequired[int]


class Patch(TypedDict, total=False):
    id: Required[int]
    due: date


class Customer(BaseModel):
    name: str
    born: date
    at: Point | None = None
    seen: datetime | None = None


class Vip(Customer):
    since: int = 2000


class Aliased(BaseModel):
    first: int = Field(alias="theFirst")
    second: int = Field(2, serialization_alias="theSecond")
    third: int = Field(3, validation_alias="theThird")


class Computing(BaseModel):
    model_config = ConfigDict(extra="forbid")
    x: int

    @pydantic.computed_field  # type: ignore[prop-decorator]  # as pydantic documents it
    @property
    def double(self) -> int:
        return 2 * self.x


class Open(BaseModel):
    model_config = ConfigDict(extra="allow")
    x: int
    _seen: int = PrivateAttr(0)


class Strict(BaseModel):
    model_config = ConfigDict(strict=True, frozen=True)
    at: datetime
    names: frozenset[str] = frozenset()
    pair: tuple[int, str] = (1, "a")


class ModelCat(BaseModel):
    kind: Literal["cat"] = "cat"
    name: str


class ModelDog(BaseModel):
    kind: Literal["dog"] = "dog"
    name: str


class ModelBox(BaseModel, Generic[T]):
    content: T


class Names(RootModel[list[str]]):
    pass


class Secretive(BaseModel):
    word: SecretStr


class Numbers(BaseModel):
    x: float = 0.0
    raw: bytes = b""


@pydantic.dataclasses.dataclass
class Checked:
    x: int
    at: date


@dataclass
class WithModel:
    who: Customer
    others: dict[str, Customer] = field(default_factory=dict)


class MyStr(str):
    __slots__ = ()


class MyInt(int):
    pass


class MyList(list[int]):
    pass


class MyDict(dict[str, int]):
    pass


class MyMoment(datetime):
    pass


class Wandering(tzinfo):
    """A zone that nothing is known about."""

    def utcoffset(self, moment: datetime | None) -> timedelta:
        if moment is None:
            raise ValueError("when?")
        return timedelta(hours=1)

    def dst(self, moment: datetime | None) -> None:
        return None

    def tzname(self, moment: datetime | None) -> str:
        return "?"


NOON = datetime(2030, 1, 2, 12, 0, 0, 1)  # noqa: DTZ001 - naive on purpose
BERLIN = ZoneInfo("Europe/Berlin")
ANN = Customer(name="Ann", born=date(2000, 1, 2), at=Point(1, 2.0))
UNIQUE = UUID(int=5)


def counted(**fields: Any) -> Counted:
    made = Counted([1, 2])
    made.mean  # noqa: B018 - fills the cache
    for name, value in fields.items():
        setattr(made, name, value)
    return made


def opened(**attributes: Any) -> Open:
    made = Open(x=1)
    for name, value in attributes.items():
        setattr(made, name, value)
    return made


RESTORED: list[tuple[str, Any, Any]] = [
    # Plain
    ("text", str, "naïve \x00 \u2028 \U0001f600"),
    ("an int beyond 64 bits", int, -(2**70) - 1),
    ("a big int without an annotation", Any, 2**70 + 1),
    ("a bool", bool, True),
    ("None", None, None),
    ("a float", float, 0.1),
    ("minus zero", float, -0.0),
    ("the smallest float", float, 5e-324),
    ("a whole float without an annotation", Any, 1e16),
    ("plain values without an annotation", Any, {"a": [1, 1.5, None, True, "x", {}], "": []}),
    ("plain values as object", object, [[], [1]]),
    ("a type variable", T, [1, "a"]),
    ("a NewType", OrderId, "o-1"),
    ("a NewType of a date", Day, date(2030, 1, 2)),
    ("an alias", Json, {"a": [1]}),
    ("something annotated", Annotated[date, "a comment"], date(2030, 1, 2)),
    ("something constrained", Annotated[int, msgspec.Meta(gt=0)], 1),
    ("a literal", Literal["a", 1] | None, "a"),
    ("a literal of an enum", Literal[Colour.RED, "x"], Colour.RED),
    ("a literal string", LiteralString, "a"),
    ("a constrained type variable", Number, date(2030, 1, 2)),
    # Standard library
    ("bytes", bytes, b"\x00\xff"),
    ("a bytearray", bytearray, bytearray(b"\x00\xff")),
    ("a UUID", UUID, UNIQUE),
    ("a Decimal", Decimal, Decimal("1.10")),
    ("a Decimal that is no number", Decimal, Decimal("NaN")),
    ("a date", date, date(1, 1, 1)),
    ("a naive datetime", datetime, NOON),
    ("an aware datetime", datetime, NOON.replace(tzinfo=UTC)),
    ("an offset", datetime, NOON.replace(tzinfo=timezone(timedelta(hours=-3, minutes=-30), "X"))),
    ("the zone UTC", datetime, NOON.replace(tzinfo=ZoneInfo("UTC"))),
    ("a time", time, time(1, 2, 3, 4)),
    ("an aware time", time, time(1, 2, tzinfo=UTC)),
    ("the longest timedelta", timedelta, timedelta.max),
    ("a negative timedelta", timedelta, timedelta(days=-1, microseconds=1)),
    ("a path", Path, Path("/a/../b c")),
    ("a pure path", PurePosixPath, PurePosixPath("a")),
    ("a complex number", complex, complex(-0.0, 1e300)),
    ("a fraction", Fraction, Fraction(1, 3)),
    ("a network address", IPv4Address, IPv4Address("10.0.0.1")),
    ("a network", IPv6Network, IPv6Network("2001:db8::/32")),
    ("a zone", ZoneInfo, BERLIN),
    # Enums
    ("an enum", Colour, Colour.RED),
    ("an int enum", Level, Level.HIGH),
    ("a string enum", Size, Size.SMALL),
    ("a flag", Right, Right.READ | Right.WRITE),
    # Containers
    ("a list", list[int], [1, 2]),
    ("a bare list", list, [1, "a"]),
    ("a bare tuple", tuple, (1, "a")),
    ("a fixed tuple", tuple[int, str], (1, "a")),
    ("an empty tuple", tuple[()], ()),
    ("a variable tuple", tuple[date, ...], (date(2030, 1, 2),)),
    ("a set", set[str], {"a", "b"}),
    ("a set of tuples", set[tuple[int, str]], {(1, "a"), (2, "b")}),
    ("a set of frozen dataclasses", set[Hashed], {Hashed(n) for n in range(20)}),
    ("a frozenset", frozenset[UUID], frozenset({UNIQUE})),
    ("a set of floats", set[float], {1.5, 2.5}),
    ("a sequence", Sequence[int], [1]),
    ("a mapping", Mapping[str, int], {"a": 1}),
    ("an iterable", Iterable[int], [1]),
    ("int keys", dict[int, str], {1: "a", -2: "b"}),
    ("float keys", dict[float, int], {1.5: 1}),
    ("UUID keys", dict[UUID, int], {UNIQUE: 1}),
    ("enum keys", dict[Colour, int], {Colour.RED: 1}),
    ("int enum keys", dict[Level, int], {Level.LOW: 1}),
    ("date keys", dict[date, int], {date(2030, 1, 2): 1}),
    ("keys in their order", dict[str, int], {"b": 1, "a": 2}),
    ("deep containers", dict[str, list[tuple[int, set[str]]]], {"a": [(1, {"b"})]}),
    ("a named tuple", Pair, Pair(1)),
    ("a named tuple without types", Loosely, Loosely(1, "a")),
    ("a typed dict", Movie, {"title": "M"}),
    ("a typed dict with all keys", Movie, {"title": "M", "year": 1931}),
    ("a partial typed dict", Patch, {"id": 1, "due": date(2030, 1, 2)}),
    # Unions
    ("an optional", int | None, None),
    ("an old-style optional", Optional[date], date(2030, 1, 2)),  # noqa: UP045 - people write it
    ("an old-style union", Union[int, str], "1"),  # noqa: UP007 - people write it
    ("a number", int | float, 1),
    ("another number", int | float, 1.0),
    ("bool among numbers", float | int | bool, True),
    ("tagged structs", Card | Cash, Cash(5)),
    ("a list of tagged structs", list[Card | Cash | None], [Card("1"), None, Cash(5)]),
    ("a union of dataclasses: the first", Cat | Dog, Cat("a")),
    ("a union of dataclasses: the second", Cat | Dog, Dog("a")),
    ("a union of dataclasses in a container", dict[str, list[Cat | Dog]], {"a": [Dog("a"), Cat("b")]}),
    ("a dataclass or a number", Point | int | None, Point(1)),
    ("models apart by a literal", ModelCat | ModelDog, ModelDog(name="a")),
    ("models in a container", list[ModelCat | ModelDog], [ModelDog(name="a"), ModelCat(name="a")]),
    ("an optional model", Customer | None, ANN),
    ("a model or text", Customer | str | None, ANN),
    ("a model or text: text", Customer | str | None, "Ann"),
    ("a discriminated union", Annotated[ModelCat | ModelDog, Field(discriminator="kind")], ModelDog(name="a")),
    # Dataclasses
    ("a dataclass", Point, Point(1, 2.5, ["a"])),
    ("dataclasses in a list", list[Point], [Point(1), Point(2)]),
    ("a dataclass that inherits", Point3, Point3(1, 2.0, [], 3)),
    ("a frozen dataclass with slots", Frozen, Frozen(at=NOON)),
    ("a generic dataclass", Box[date], Box(date(2030, 1, 2), Box(date(2030, 1, 3)))),
    ("a generic dataclass without its parameter", Box, Box(1)),
    ("a field without init, and a cached property", Counted, counted(total=5)),
    ("a dataclass with an init-only variable", Salted, Salted(1)),
    ("a dataclass without ==", Nameless, Nameless(1)),
    ("a dataclass whose == lies", Liar, Liar(1)),
    ("a dataclass with unions in it", Keeper, Keeper(Dog("a"), NOON, [Keeper(Cat("b"))])),
    ("a dataclass with a model in it", WithModel, WithModel(ANN, {"a": ANN})),
    ("a pydantic dataclass", Checked, Checked(1, date(2030, 1, 2))),
    ("a loose field with plain content", Loose, Loose([1], {"a": 1})),
    # Structs
    ("a struct", Struct, Struct(b"x", date(2030, 1, 2))),
    ("a frozen struct with other names", FrozenStruct, FrozenStruct("Ann")),
    ("a generic struct", Holder[date], Holder(date(2030, 1, 2))),
    # Pydantic
    ("a model", Customer, ANN),
    ("models in a dict", dict[str, Customer], {"a": ANN}),
    ("a model with aliases", Aliased, Aliased.model_validate({"theFirst": 1, "theThird": 4})),
    ("a model that computes", Computing, Computing(x=1)),
    ("a model with more than its fields", Open, opened(y=[2])),
    ("a strict model", Strict, Strict(at=NOON.replace(tzinfo=UTC), names=frozenset("ab"))),
    ("a generic model", ModelBox[date], ModelBox[date](content=date(2030, 1, 2))),
    ("a root model", Names, Names(["a"])),
    ("a root model in a tuple", tuple[Names, int], (Names(["a"]), 1)),
]

REFUSED: list[tuple[str, Any, Any, str]] = [
    # What JSON does not have
    ("NaN", float, math.nan, "nan has no place in JSON"),
    ("an optional infinity", float | None, math.inf, "inf has no place in JSON"),
    ("NaN far inside", Any, [{"a": (b := [1.0, -math.inf])}, b], "-inf has no place in JSON"),
    ("NaN in a dataclass", Point, Point(1, math.nan), "nan has no place in JSON"),
    ("NaN in a model", Numbers, Numbers(x=math.nan), "nan has no place in JSON"),
    ("half a surrogate pair", str, "\ud800", "surrogate"),
    ("half a surrogate pair in a key", Any, {"\ud800": 1}, "surrogate"),
    ("an int without end", int, 10**5000, "more digits than Python writes"),
    ("an int without end inside", Any, [10**5000], "more digits than Python writes"),
    ("a tuple as key", dict[tuple[int, int], int], {(1, 2): 3}, "list of pairs"),
    ("a bool as key", dict[bool, int], {True: 1}, "list of pairs"),
    ("bytes that are no text in a model", Numbers, Numbers(raw=b"\xff"), "utf-8"),
    ("a function", Any, len, "cannot be written as JSON"),
    ("a class", Any, Customer, "cannot be written as JSON"),
    ("a generator", list[int], (n for n in [1]), "generator values cannot be written as JSON"),
    ("an event", Any, asyncio.Event(), "cannot be written as JSON"),
    ("a struct as key", dict[Card, int], {FrozenStruct("x"): 3}, "list of pairs"),
    ("a model as key", dict[Strict, int], {Strict(at=NOON): 3}, "list of pairs"),
    # What would come back as something else
    ("a tuple without an annotation", Any, (1, 2), "tuple values come back as tuple only under an annotation"),
    ("a tuple inside", Any, {"a": [(1,)]}, r"annotate the type - at `\$\['a'\]\[0\]`"),
    ("a set without an annotation", object, {1}, "annotate the type"),
    ("bytes without an annotation", Any, b"x", "annotate the type"),
    ("a date inside", Any, [date(2030, 1, 2)], "date values come back as date only under an annotation"),
    ("an enum without an annotation", Any, Colour.RED, "annotate the type"),
    ("an int enum without an annotation", Any, Level.LOW, "Level values come back as Level only"),
    ("a dataclass without an annotation", Any, Point(1), "annotate the type"),
    ("a model without an annotation", Any, ANN, "annotate the type"),
    ("int keys without an annotation", Any, {1: 2}, "would come back as a string; annotate the type"),
    ("int keys inside", Any, [{"a": {1: 2}}], "would come back as a string"),
    ("keys of two types", dict[int | str, int], {1: 1, "2": 2}, "would come back as a string"),
    ("a tuple as a list", list[int], (1, 2), "tuple would come back as list; annotate it as tuple"),
    ("a list as a tuple", tuple[int, ...], [1], "list would come back as tuple"),
    ("a tuple as a sequence", Sequence[int], (1,), "tuple would come back as list"),
    ("a set as a list", list[int], {1}, "set would come back as list"),
    ("a frozenset as a set", set[int], frozenset({1}), "frozenset would come back as set"),
    ("a bytearray as bytes", bytes, bytearray(b"x"), "bytearray would come back as bytes"),
    ("a named tuple as a tuple", tuple[int, str], Pair(1), "Pair would come back as tuple"),
    ("an int enum as an int", int, Level.LOW, "Level would come back as int"),
    ("a string enum as text", str, Size.SMALL, "Size would come back as str"),
    ("a string that is more", str, MyStr("x"), "MyStr is more than str, and would lose the rest; pass a plain str"),
    ("an int that is more", Any, MyInt(1), "MyInt is more than int"),
    ("a list that is more", list[int], MyList([1]), "MyList would come back as list"),
    ("a list that is more, without an annotation", Any, MyList([1]), "MyList values come back as MyList only"),
    ("a dict that is more", dict[str, int], MyDict(a=1), "MyDict would come back as dict"),
    ("an ordered dict", dict[str, int], OrderedDict(a=1), "OrderedDict would come back as dict"),
    ("a default dict", dict[str, int], defaultdict(int, a=1), "defaultdict would come back as dict"),
    ("a moment that is more", datetime, MyMoment(2030, 1, 2), "pass a plain datetime"),
    ("a subclass under its base", Point, Point3(1), "Point3 would come back as Point; annotate it as Point3"),
    ("a subclass inside", list[Point], [Point(1), Point3(1)], r"Point3 would come back as Point.*`\$\[1\]`"),
    ("a struct under its base", Struct, Sub(b"x"), "Sub would come back as Struct"),
    ("a model under its base", Customer, Vip(name="Ann", born=date(2000, 1, 2)), "Vip would come back as Customer"),
    (
        "a model under its base, inside",
        WithModel,
        WithModel(Vip(name="A", born=date(2000, 1, 2))),
        r"Vip would .*`\$.who`",
    ),
    ("a generic model without its parameter", ModelBox[int], ModelBox(content=1), "ModelBox would come back as"),
    ("a dataclass for another", Dog, Cat("a"), "Cat would come back as Dog"),
    ("a dict for a dataclass", Point, {"x": 1}, "dict would come back as Point"),
    ("a dict for a model", Names, ["a"], "list would come back as Names"),
    ("text for a date", date, "2030-01-02", "str would come back as date"),
    ("an enum's value for the enum", Colour, "red", "str would come back as Colour"),
    (
        "text that looks like the moment of a field's union",
        Keeper,
        Keeper(Cat("a"), "2030-01-02T00:00:00"),
        "str would come back as datetime",
    ),
    ("a union that JSON cannot tell apart", list[int] | tuple[int, ...], (1,), "tuple would come back as list"),
    ("dataclasses JSON cannot tell apart", Hashed | Nameless, Nameless(1), "Nameless would come back as Hashed"),
    ("a tuple in a loose field", Loose, Loose((1,)), r"tuple would come back as list.*`\$.what`"),
    ("a date in a loose named tuple", Loosely, Loosely(1, date(2030, 1, 2)), r"date would come back as str.*`\$\[1\]`"),
    ("a tuple in an open model", Open, opened(y=(1,)), r"tuple would come back as list.*`\$\['y'\]`"),
    # What would change
    ("an int that is no float", float, 2**53 + 1, "9007199254740993 would come back as 9007199254740992.0"),
    ("an int beyond floats", float, 10**400, "out of range"),
    ("a float for an int", int, 1.0, "Expected `int`, got `float`"),
    ("a bool for an int", int, True, "Expected `int`, got `bool`"),
    (
        "a zone with summer time",
        datetime,
        NOON.replace(tzinfo=BERLIN),
        r"Europe/Berlin would come back as.*astimezone\(UTC\)",
    ),
    (
        "a zone in a model",
        Customer,
        Customer(name="A", born=date(2000, 1, 2), seen=NOON.replace(tzinfo=BERLIN)),
        r"`\$.seen`",
    ),
    ("a zone nobody knows", datetime, NOON.replace(tzinfo=Wandering()), "would come back as a fixed offset"),
    ("an offset of seconds", datetime, NOON.replace(tzinfo=timezone(timedelta(seconds=30))), "would come back as"),
    ("the second of two equal times", datetime, NOON.replace(fold=1), "would come back as"),
    ("a key the annotation does not know", Movie, {"title": "M", "stars": 5}, "the key 'stars' would be lost"),
    ("an attribute that is no field", Forgetful, Forgetful(1).remember("x"), r"lost; declare it as a field.*`\$.word`"),
    ("an attribute that was changed", Counted, counted(longest=7), "7 would come back as 2; declare"),
    ("an attribute that is never the same", Restless, Restless(1), "declare the attribute as a field"),
    (
        "a private attribute that was changed",
        Open,
        opened(_seen=3),
        r"3 would come back as 0",
    ),
    ("a dataclass that changes when it is made", Growing, Growing(1), r"2 would come back as 3 - at `\$.x`"),
    ("a secret", Secretive, Secretive(word=SecretStr("x")), r"would come back.*`\$.word"),
    ("a model that was not checked", Customer, Customer.model_construct(name="A", born="2000-01-01"), r"`\$.born`"),
    # What does not fit, or cannot be restored by anybody
    ("text for an int", int, "1", "Expected `int`, got `str`"),
    ("the wrong thing inside", list[int], ["a"], r"Expected `int`, got `str` - at `\$\[0\]`"),
    ("something else than the literal", Literal["a"], "b", "Invalid enum value"),
    ("another member than the literal's", Literal[Colour.RED], Colour.BLUE, "not <Colour.RED"),
    ("none of the union", Cat | Dog, 5, "fits none of the types of the union"),
    ("less than the constraint", Annotated[int, msgspec.Meta(gt=0)], 0, "Expected `int` >= 1"),
    ("a model that does not validate", Customer, {"name": 1}, "validation error"),
    ("a dataclass without a field", Keeper, {"since": "x"}, "missing required field `pet`"),
    ("a deque", deque[int], deque([1]), "deque values cannot be written as JSON"),
    ("a counter", Counter[str], Counter("aa"), "cannot be restored|Expected"),
    ("an enum of all sorts", Odd, Odd.PAIR, "Enums must contain either all str or all int"),
    ("a dataclass with an unknown type", Plane, Plane("x"), "cannot be restored: name 'Unheard' is not defined"),
    ("a type no JSON can be made of", type, int, "cannot be written as JSON"),
    ("a namespace", types.SimpleNamespace, types.SimpleNamespace(a=1), "cannot be written as JSON"),
]


def rows(table: list[Any]) -> Any:
    return {"argvalues": [row[1:] for row in table], "ids": [row[0] for row in table]}


@pytest.mark.parametrize(("annotation", "value"), **rows(RESTORED))
def test_what_is_written_comes_back_as_it_was(annotation: Any, value: Any) -> None:
    kind = ValueType(annotation)
    data, live = kind.record(value, "here")
    again = ValueType(annotation).restore(data, "here")
    assert type(live) is type(again) is type(value)
    assert (difference(value, live), difference(live, again)) == (None, None)


@pytest.mark.parametrize(("annotation", "value", "words"), **rows(REFUSED))
def test_what_would_not_come_back_as_it_was_is_refused(annotation: Any, value: Any, words: str) -> None:
    with pytest.raises(BadValue, match=f"(?s)^here: .*{words}"):
        ValueType(annotation).record(value, "here")


# What is accepted though it comes back as something else, on purpose


@pytest.mark.parametrize(
    ("annotation", "value", "seen"),
    [
        (float, 1, 1.0),
        (list[float], [1, 2.5], [1.0, 2.5]),
        (set[float], {10, 1.5, 100, 2}, {10.0, 1.5, 100.0, 2.0}),
        (dict[str, float | None], {"a": 1, "b": None}, {"a": 1.0, "b": None}),
        (Point, Point(1, 2), Point(1, 2.0)),
        (Numbers, Numbers.model_construct(x=1), Numbers(x=1.0)),
    ],
)
def test_an_int_may_stand_for_a_float_and_is_one_from_then_on(annotation: Any, value: Any, seen: Any) -> None:
    """Live as on replay: nobody shall find an int today and a float tomorrow."""
    data, live = ValueType(annotation).record(value, "here")
    assert repr(live) == repr(seen) or isinstance(seen, set)
    assert live == seen == ValueType(annotation).restore(data, "here")
    assert difference(seen, live) is None


def test_a_zone_without_summer_time_comes_back_as_its_offset() -> None:
    _, live = ValueType(datetime).record(NOON.replace(tzinfo=ZoneInfo("UTC")), "here")
    assert repr(live) == repr(NOON.replace(tzinfo=UTC))


def test_a_dict_keeps_its_order() -> None:
    _, live = ValueType(dict[str, int]).record({"b": 1, "a": 2}, "here")
    assert isinstance(live, dict)
    assert list(live) == ["b", "a"]


def test_a_value_is_copied_not_shared() -> None:
    """What one side does to it later, the other must not see; a replay would not."""
    value = Point(1, 2.0, ["a"])
    _, live = ValueType(Point).record(value, "here")
    value.tags.append("b")
    assert live == Point(1, 2.0, ["a"])


# Limits


def nested(levels: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(levels - 1):
        value = [value]
    return value


@pytest.mark.parametrize("filler", ["", "x" * 5000])
def test_values_may_be_nested_64_levels_deep(filler: str) -> None:
    ValueType(Any).record([filler, *nested(64)], "here")
    for levels in (65, 500, 100_000):
        with pytest.raises(BadValue, match="nested too deeply .the limit is 64 levels"):
            ValueType(Any).record([filler, *nested(levels)], "here")


def test_a_value_that_contains_itself_is_refused() -> None:
    value: dict[str, Any] = {}
    value["self"] = [value]
    with pytest.raises(BadValue, match="contains itself"):
        ValueType(Any).record(value, "here")
    node = Box(1)
    node.inner = node
    with pytest.raises(BadValue, match="contains itself"):
        ValueType(Box[int]).record(node, "here")


@pytest.mark.parametrize(
    ("annotation", "value"),
    [(str, "x" * 2**21), (bytes, b"x" * 2**21), (list[str], ["x" * 100] * 2**15), (Any, [1] * 2**20)],
)
def test_a_value_above_two_mebibytes_is_refused(annotation: Any, value: Any) -> None:
    with pytest.raises(ValueTooLarge, match="the limit is 2,097,152; store it elsewhere"):
        ValueType(annotation).record(value, "here")


LARGE: list[tuple[str, Any, Any]] = [
    ("numbers", list[int], list(range(1000))),
    ("numbers as floats", list[float], list(range(1000))),
    ("dicts", Any, [{"a": n, "b": [str(n), None]} for n in range(200)]),
    ("dataclasses", list[Point], [Point(n, n / 7, ["a", str(n)]) for n in range(200)]),
    ("frozen dataclasses", tuple[Frozen, ...], tuple(Frozen(at=NOON) for _ in range(200))),
    ("structs", list[Struct], [Struct(b"x", NOON.date()) for _ in range(200)]),
    ("models", list[Customer], [ANN] * 200),
    ("cached properties", list[Counted], [counted() for _ in range(200)]),
    ("sets", list[set[str]], [{"a", str(n)} for n in range(200)]),
    ("enums", dict[str, Colour], {str(n): Colour.RED for n in range(200)}),
]


@pytest.mark.parametrize(("annotation", "value"), **rows(LARGE))
def test_large_values_come_back_as_they_were(annotation: Any, value: Any) -> None:
    data, live = ValueType(annotation).record(value, "here")
    assert len(data) > 1024
    assert difference(value, live) is None


@pytest.mark.parametrize(("annotation", "value"), **rows(LARGE[1:]))
@pytest.mark.parametrize("spoilt", [(1,), frozenset("a"), Level.LOW, Point3(1), math.nan, MyList()])
def test_one_wrong_item_among_many_is_found(annotation: Any, value: Any, spoilt: Any) -> None:
    values = dict(enumerate(value)) if not isinstance(value, dict) else dict(value)
    values[list(values)[150]] = spoilt
    wrong = values if isinstance(value, dict) else type(value)(values.values())
    with pytest.raises(BadValue, match="here"):
        ValueType(annotation).record(wrong, "here")


# Any value under any annotation

leaves: list[tuple[Any, "st.SearchStrategy[Any]"]] = [
    (int, st.integers()),
    (str, st.text(max_size=5)),
    (bool, st.booleans()),
    (None, st.none()),
    (float, st.floats()),
    (bytes, st.binary(max_size=5)),
    (date, st.dates()),
    (datetime, st.datetimes(timezones=st.none() | st.timezones() | st.just(UTC))),
    (time, st.times()),
    (timedelta, st.timedeltas()),
    (Decimal, st.decimals().filter(lambda number: not number.is_snan())),
    (UUID, st.uuids()),
    (Colour, st.sampled_from(Colour)),
    (Level, st.sampled_from(Level)),
    (complex, st.complex_numbers()),
    (Fraction, st.fractions()),
    (Hashed, st.builds(Hashed, st.integers())),
    (Point, st.builds(Point, st.integers(), st.floats() | st.integers(), st.lists(st.text(max_size=3), max_size=2))),
    (Card, st.builds(Card, st.text(max_size=3))),
    (Any, st.integers() | st.text(max_size=3) | st.lists(st.floats(), max_size=2) | st.tuples(st.integers())),
]
Typed = tuple[Any, "st.SearchStrategy[Any]"]
hashable = {int, str, bool, float, bytes, date, datetime, time, timedelta, Decimal, UUID, Colour, Level, Hashed}


def either(one: "st.SearchStrategy[Any]", other: "st.SearchStrategy[Any]") -> "st.SearchStrategy[Any]":
    return st.booleans().flatmap(lambda is_first: one if is_first else other)


def made_of(generic: Any, *annotations: Any) -> Any:
    return generic[annotations if len(annotations) > 1 else annotations[0]]


def grown(inner: "st.SearchStrategy[Typed]") -> "st.SearchStrategy[Typed]":
    """Annotations made of others, with the values that belong to them."""
    two = st.tuples(inner, inner)
    return st.one_of(
        inner.map(lambda of: (made_of(list, of[0]), st.lists(of[1], max_size=3))),
        inner.map(lambda of: (made_of(tuple, of[0], ...), st.lists(of[1], max_size=3).map(tuple))),
        two.map(lambda of: (made_of(tuple, of[0][0], of[1][0]), st.tuples(of[0][1], of[1][1]))),
        two.map(lambda of: (made_of(Union, of[0][0], of[1][0]), either(of[0][1], of[1][1]))),
        inner.map(lambda of: (made_of(Optional, of[0]), st.none() | of[1])),
        inner.map(lambda of: (made_of(Box, of[0]), st.builds(Box, of[1]))),
        st.tuples(keys, inner).map(
            lambda of: (made_of(dict, of[0][0], of[1][0]), st.dictionaries(of[0][1], of[1][1], max_size=3))
        ),
        keys.map(lambda of: (made_of(set, of[0]), st.sets(of[1], max_size=3))),
        keys.map(lambda of: (made_of(frozenset, of[0]), st.frozensets(of[1], max_size=3))),
    )


keys = st.sampled_from([leaf for leaf in leaves if leaf[0] in hashable])
typed = st.recursive(st.sampled_from(leaves), grown, max_leaves=5)


def told(value: Any) -> Any:
    """All there is to a value, in another way than the one under test."""
    match value:
        case list() | tuple():
            inside: Any = [told(item) for item in value]
        case dict():
            inside = [(told(key), told(item)) for key, item in value.items()]
        case set() | frozenset():
            inside = sorted((told(item) for item in value), key=repr)
        case Box() | Point() | Hashed() | Card():
            names = getattr(value, "__struct_fields__", None) or vars(value)
            inside = {name: told(getattr(value, name)) for name in names}
        case datetime() if value.tzinfo is not None:
            inside = (value.replace(tzinfo=None, fold=0).isoformat(), value.utcoffset())
        case _:
            inside = repr(value)
    return type(value).__qualname__, inside


def with_floats(value: Any, live: Any) -> Any:
    """The value, with those ints as floats that came back as floats."""
    match value:
        case int() if type(live) is float:
            return float(value)
        case list() | tuple() if len(value) == len(live):
            return type(value)(with_floats(one, other) for one, other in zip(value, live, strict=True))
        case dict():
            items = zip(value.items(), live.values(), strict=True)
            return {key: with_floats(item, other) for (key, item), other in items}
        case Box():
            return Box(with_floats(value.content, live.content))
        case Point():
            return Point(value.x, with_floats(value.y, live.y), value.tags)
        case _:
            return value


@given(st.data(), typed, typed)
@settings(max_examples=400)
def test_any_value_under_any_annotation_is_restored_or_refused(data: st.DataObject, one: Typed, other: Typed) -> None:
    """Its own annotation, or one that was meant for something else."""
    annotation, values = one
    value = data.draw(either(values, other[1]))
    try:
        written, live = ValueType(annotation).record(value, "here")
    except BadValue:
        return
    assert told(ValueType(annotation).restore(written, "here")) == told(live)
    assert told(with_floats(value, live)) == told(live)


@given(st.data(), typed)
@settings(max_examples=200)
def test_the_quick_look_at_large_values_finds_all_that_the_slow_one_finds(data: st.DataObject, one: Typed) -> None:
    value = data.draw(one[1])
    other = data.draw(either(one[1], st.just(value)))
    if are_alike(value, other):
        assert told(value) == told(other)


# Through the engine

_seen: list[Any] = []


def carrier(name: str, annotation: Any, signalled: Any) -> Any:
    """A workflow that passes its argument to an activity and a child, waits for it as a signal, and returns it."""
    wanted: Signal[Any] = Signal("wanted", signalled)

    async def passes_on(value: Any) -> Any:
        return value

    async def keeps(value: Any) -> Any:
        return value

    async def carries(value: Any) -> Any:
        passed = await passed_on(value)
        kept = await child(passed)
        received = await wanted.receive()
        _seen.append((value, passed, kept, received))
        return kept

    for fn in (passes_on, keeps, carries):
        fn.__annotations__ = {"value": annotation, "return": annotation}
    passed_on = activity(name=f"passes on {name}")(passes_on)
    child = workflow(name=f"keeps {name}")(keeps)
    return workflow(name=f"carries {name}")(carries), wanted


CARRIERS = {name: carrier(name.replace("(", ""), annotation, annotation) for name, annotation, _ in RESTORED}
TAKERS = {name: carrier(f"refused {name}", annotation, Any)[0] for name, annotation, *_ in REFUSED}


async def test_values_travel_through_runs_as_they_are(env: Environment) -> None:
    """As an argument, to and from an activity and a child, as a signal and a result; with a crash on the way."""
    async with env:
        for name, _, value in RESTORED:
            await env.start(CARRIERS[name][0].options(id=name), value)
        await env.settle()
        await env.crash()
        for name, _, value in RESTORED:
            run = await env.app.get(name)
            _seen.clear()
            await run.signal(CARRIERS[name][1], value)
            result = await env.result(run)
            for seen in (*_seen[-1], result):
                assert (name, difference(value, seen)) == (name, None)


async def test_what_is_refused_leaves_nothing_behind(tmp_path: Path) -> None:
    async with Environment(str(tmp_path / "refused.db")) as env:
        await env.settle()
        before = env.store.commits
        for name, _, value, _ in REFUSED:
            with pytest.raises(BadValue, match="argument 'value': "):
                await env.start(TAKERS[name], value)
        await env.settle()
        assert (env.store.commits, len(await env.app.list())) == (before, 0)


# Unions of text


@pytest.mark.parametrize(
    "annotation",
    [
        bytes | str,
        datetime | str,
        str | UUID | None,
        Union[Path, str],  # noqa: UP007 - people write it
        dict[str, list[Decimal | str]],
        Annotated[timedelta | str, "how long"],
        Colour | str,
        AnyStr,
    ],
    ids=str,
)
def test_a_union_that_text_cannot_tell_apart_is_refused_at_decoration(annotation: Any) -> None:
    """Whether a value comes back as it was would depend on what it says; nobody finds out before it says that."""

    def takes(what: annotation) -> None: ...
    def returns() -> annotation: ...

    for fn, where in ((takes, "takes, argument 'what'"), (returns, "returns, its result")):
        with pytest.raises(BadOption, match=rf"{where}.*are both text in JSON; annotate one of them"):
            activity(fn)
    with pytest.raises(BadOption, match="the signal 'x'.*are both text in JSON"):
        Signal("x", annotation)


@pytest.mark.parametrize(
    "annotation", [date | datetime, UUID | bytes, int | str | None, Literal["a"] | Path, list[str] | bytes, Keeper]
)
def test_other_unions_are_not_refused(annotation: Any) -> None:
    def takes(what: annotation) -> annotation: ...

    activity(takes)
    Signal("x", annotation)
