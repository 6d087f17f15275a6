"""Questions: what a store asks its database, one after the other.

In:   what each question found, sent into a generator; what the database refuses is thrown into it.
Out:  the next question, and in the end what it was all for.

The rules of reading and writing stand in such generators, once for all databases: SQLite is asked on a thread,
Postgres over the network, and none of the rules knows which.
"""

from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias, TypeVar

import msgspec

T = TypeVar("T")


class Query(NamedTuple):
    """A named query and its parameters; lists are bound as what the database has for them."""

    name: str
    parameters: Mapping[str, object]


class Several(NamedTuple):
    """Named queries that only read and have the same parameters, in one round trip; each one's rows are one row."""

    names: tuple[str, ...]
    parameters: Mapping[str, object]


class Text(NamedTuple):
    """A query that has no name, since it is made of conditions."""

    sql: str
    parameters: Mapping[str, object]


class ManyRows(NamedTuple):
    """A named statement over many rows at once."""

    name: str
    rows: Sequence[Sequence[object]]


class Savepoint(NamedTuple):
    """What is done from here on can be undone by itself."""


class Release(NamedTuple):
    """The savepoint is over; what was done since is undone or stays."""

    undo: bool


class Found(msgspec.Struct, frozen=True):
    """Rows, in the order of their columns, and how many rows were found or changed."""

    columns: Sequence[str]
    rows: Sequence[Any]
    count: int

    def dicts(self) -> list[dict[str, object]]:
        """The rows by column."""
        return [dict(zip(self.columns, row, strict=True)) for row in self.rows]

    @property
    def first(self) -> Any:
        return self.rows[0] if self.rows else None


Question: TypeAlias = Query | Several | Text | ManyRows | Savepoint | Release
NOTHING = Found((), (), 0)
Steps: TypeAlias = Generator[Question, Found, T]


class Ask(Protocol):
    """How a database is asked; when the answer cannot be read, another way, or once more to learn what is wrong."""

    async def __call__(self, quickly: Callable[[], Steps[T]], slowly: Callable[[], Steps[T]] | None = None) -> T: ...
