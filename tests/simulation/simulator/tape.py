"""The tape: every choice of a schedule, drawn from a seed or read from a list, and written down.

Choice 0 is always the dullest one: no fault, the next thing in its turn. So a tape that
is cut short goes on without surprises, and a failing one can be shrunk by leaving out
what is not needed for the failure.
"""

import random
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


class Tape:
    """Choices, the same ones for the same seed on every Python."""

    def __init__(self, seed: int, given: Sequence[int] | None = None) -> None:
        self.seed = seed
        self.choices: list[int] = []
        self._given = given
        self._random = random.Random(seed).random

    def choose(self, count: int) -> int:
        """One of 0 .. count - 1."""
        choice = int(self._random() * count) if self._given is None else self._next_given() % count
        self.choices.append(choice)
        return choice

    def happens(self, per_mille: int) -> bool:
        """Whether something happens that does so this often in a thousand times."""
        choice = int(self._random() * 1000 < per_mille) if self._given is None else min(self._next_given(), 1)
        self.choices.append(choice)
        return choice == 1

    def one_of(self, *options: T) -> T:
        """One of the options, the first one being the dullest."""
        return options[self.choose(len(options))]

    def between(self, lowest: int, highest: int) -> int:
        """A number from lowest to highest."""
        return lowest + self.choose(highest - lowest + 1)

    def _next_given(self) -> int:
        assert self._given is not None
        at = len(self.choices)
        return self._given[at] if at < len(self._given) else 0
