"""Differences between the tables a database has and those that the migrations make."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple


class Difference(NamedTuple):
    """Where a database is not as it should be; one that `hinders` makes our statements impossible."""

    found: str
    hinders: bool


def columns_apart(table: str, found: Mapping[str, str], expected: Mapping[str, str]) -> Iterator[Difference]:
    """Where the columns of a table, each with its kind, differ."""
    for column, kind in expected.items():
        if column not in found:
            yield Difference(f"the column {table}.{column} is missing", hinders=True)
        elif found[column] != kind:
            yield Difference(f"the column {table}.{column} is {found[column]}, not {kind}", hinders=False)
    for column in found.keys() - expected.keys():
        yield Difference(f"the column {table}.{column} is one too many", hinders=False)
