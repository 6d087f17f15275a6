"""Random workflow programs, as trees that can be kept as JSON.

In:   a seed.
Out:  a program: a tree of parts, each with the name of an ability and what it needs.

A program is data, so a recorded history keeps the program it belongs to and does not
depend on how programs are drawn later. `tests.programs.abilities` says what there is
to draw and what it does.
"""

import random
from collections.abc import Callable, Coroutine
from typing import Any, TypeAlias

import msgspec

Part: TypeAlias = dict[str, Any]
Run: TypeAlias = Callable[[Part, Any], Coroutine[Any, Any, object]]

# How deep parts may be nested, and how many a program may have.
DEEPEST = 4
FEWEST_PARTS = 8
MOST_PARTS = 70
# The same for programs whose histories are kept with the tests.
FEW_PARTS = 12
LEAVES = 0.3


class Ability(msgspec.Struct, frozen=True):
    """One thing a workflow can do: how a part of it is drawn, and how it is run."""

    draw: "Callable[[Artist], Part]"
    run: Run
    weight: int
    is_leaf: bool


abilities: dict[str, Ability] = {}


def ability(
    draw: "Callable[[Artist], Part]" = lambda _: {}, *, weight: int = 2, is_leaf: bool = False
) -> Callable[[Run], Run]:
    """Make a coroutine function an ability of its name.

    `draw` gives what the function finds in its part. `weight` says how often it is drawn; a
    leaf holds no other parts and can stand at the bottom of a tree.
    """

    def decorate(run: Run) -> Run:
        assert run.__name__ not in abilities
        abilities[run.__name__] = Ability(draw, run, weight, is_leaf)
        return run

    return decorate


class Artist:
    """Draws one program."""

    def __init__(self, seed: int, most_parts: int) -> None:
        self._chance = random.Random(seed)
        self._parts_left = self._chance.randint(FEWEST_PARTS, most_parts)
        self._depth = 0
        self._drawn = 0

    def part(self) -> Part:
        """Any part; a leaf when the tree is deep or large enough."""
        self._parts_left -= 1
        is_leaf = self._depth >= DEEPEST or self._parts_left <= 0 or self.coin(LEAVES)
        known = [(name, ability) for name, ability in abilities.items() if ability.is_leaf or not is_leaf]
        ((name, chosen),) = self._chance.choices(known, [ability.weight for _, ability in known])
        self._drawn += 1
        number = self._drawn
        self._depth += 1
        drawn = chosen.draw(self)
        self._depth -= 1
        return {"do": name, "id": number, **drawn}

    def parts(self, fewest: int = 1, most: int = 4) -> list[Part]:
        return [self.part() for _ in range(self._chance.randint(fewest, most))]

    def maybe(self, draw: Callable[[], Any], chance: float = 0.5) -> Any:
        """Something, or None."""
        return draw() if self.coin(chance) else None

    def coin(self, chance: float = 0.5) -> bool:
        return self._chance.random() < chance

    def number(self, most: int) -> int:
        """From nought on."""
        return self._chance.randint(0, most)

    def one_of(self, *choices: Any) -> Any:
        return self._chance.choice(choices)

    def seconds(self) -> float:
        return float(self.one_of(0.5, 1, 1, 2, 2, 5, 10, 30))

    def mostly_seconds(self) -> float | None:
        """How long to wait for another part; without a limit it may be for ever."""
        return self.seconds() if self.coin(0.95) else None


def used(part: object) -> set[str]:
    """The names of the abilities that a program has."""
    match part:
        case {"do": str(name), **rest}:
            return {name}.union(*map(used, rest.values()))
        case list():
            return set().union(*map(used, part))
        case _:
            return set()


def drawn(seed: int, most_parts: int = MOST_PARTS) -> Part:
    """The program of this seed: some branches side by side, each a sequence."""
    artist = Artist(seed, most_parts)
    longest = 7 if most_parts > FEW_PARTS else 4
    parts = [
        {"do": "sequence", "id": f"-{number}", "goes_on": True, "parts": artist.parts(3, longest)}
        for number in range(artist.one_of(1, 2, 2, 3, 4))
    ]
    ways = {"how": artist.one_of("gather", "group"), "fails": artist.coin(0.1), "continues": artist.coin(0.1)}
    return {"do": "branches", "id": 0, **ways, "parts": parts}
