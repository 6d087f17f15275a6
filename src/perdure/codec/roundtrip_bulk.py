"""Bulk: the same question as likeness, about large values, asked level by level.

In:   a value, and what was restored from its JSON.
Out:  True when the two are alike for sure; else likeness has to look, and tells why.
A walk from item to item would keep everybody else waiting; here nearly all of it happens in C.
"""

from itertools import chain, compress
from operator import attrgetter
from typing import Any

from perdure.codec.roundtrip import LEAVES, comparer, field_names
from perdure.codec.wire import DEEPEST_VALUE

# Bytes of JSON from which on this pays.
LARGE = 1024


def are_alike(value: object, restored: object) -> bool:
    """Whether the two are surely alike."""
    mine, theirs = [value], [restored]
    for left in range(DEEPEST_VALUE, 0, -1):
        kinds = list(map(type, mine))
        if kinds != list(map(type, theirs)):
            return False
        level = _Level(left)
        for kind in set(kinds):
            is_of_kind = [each is kind for each in kinds]
            if not level.compare(kind, list(compress(mine, is_of_kind)), list(compress(theirs, is_of_kind))):
                return False
        if not level.mine:
            return True
        mine, theirs = level.mine, level.theirs
    return False


class _Level:
    """The values of one level, on both sides, and what lies below them."""

    def __init__(self, left: int) -> None:
        self._left = left
        self.mine: list[Any] = []
        self.theirs: list[Any] = []

    def compare(self, kind: type, mine: list[Any], theirs: list[Any]) -> bool:
        """Whether values of one type are alike, as far as this level can tell."""
        if kind in LEAVES:
            return mine == theirs
        if kind is list or kind is tuple or kind is dict:
            return self._go_into(kind, mine, theirs)
        names = field_names(kind)
        if names is not None:
            return self._go_into_fields(names, mine, theirs)
        compare = comparer(kind)
        return all(compare(one, other, self._left) is None for one, other in zip(mine, theirs, strict=True))

    def _go_into(self, kind: type, mine: list[Any], theirs: list[Any]) -> bool:
        self.mine += chain.from_iterable(mine)
        self.theirs += chain.from_iterable(theirs)
        if kind is dict:
            self.mine += chain.from_iterable(map(dict.values, mine))
            self.theirs += chain.from_iterable(map(dict.values, theirs))
        return list(map(len, mine)) == list(map(len, theirs))

    def _go_into_fields(self, names: tuple[str, ...], mine: list[Any], theirs: list[Any]) -> bool:
        # Attributes beside the fields are for likeness to judge.
        if not {*names}.issuperset(chain.from_iterable(getattr(each, "__dict__", ()) for each in mine)):
            return False
        try:
            for name in names:
                self.mine += map(attrgetter(name), mine)
                self.theirs += map(attrgetter(name), theirs)
        except AttributeError:
            return False
        return True
