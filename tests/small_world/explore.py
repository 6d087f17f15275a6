"""Exploration: every state that can be reached, breadth first.

In:   a scope and the rules.
Out:  how many states and moves there are; or the shortest way to a state that breaks a promise.

World and processes are numbered as they are met, and a state is three numbers. A move concerns one
process and the world, so the moves of each such pair are worked out once and then only looked up.
Nothing tells the two slots apart: of a state and its mirror image, in which they have changed places,
only one is kept.
"""

import time
from array import array
from collections.abc import Hashable, Iterator
from typing import Generic, TypeVar

import msgspec

from tests.small_world.checks import check_process, check_world, is_finished
from tests.small_world.model import SLOTS, Move, Process, Rules, RunRow, Scope, World, mirrored, worker_id_of
from tests.small_world.moves import moves, moves_of_time

T = TypeVar("T", bound=Hashable)

_BITS = 24
_MASK = (1 << _BITS) - 1
ABSENT = "no end can be reached any more, however long one waits"


class Numbered(Generic[T]):
    """Values by the number in which they were first met."""

    def __init__(self) -> None:
        self.values: list[T] = []
        self._numbers: dict[T, int] = {}

    def number(self, value: T) -> int:
        number = self._numbers.setdefault(value, len(self.values))
        if number == len(self.values):
            self.values.append(value)
        return number


class Found(msgspec.Struct, frozen=True):
    """What an exploration came to; `trace` is how to get to what is `broken`."""

    states: int
    moves: int
    depth: int
    finished: int
    seconds: float
    broken: str | None = None
    trace: tuple[str, ...] = ()


class _BrokenError(Exception):
    """A promise is broken by a move, or in a state."""

    def __init__(self, what: str, move: str | None) -> None:
        super().__init__(what)
        self.what = what
        self.move = move


class Explorer:
    """One exploration."""

    def __init__(self, scope: Scope, rules: Rules) -> None:
        self._scope = scope
        self._rules = rules
        self._worlds: Numbered[World] = Numbered()
        self._processes: Numbered[Process] = Numbered()
        # The moves of a pair, each as world, process and whether it is a fault, packed into one number.
        self._moves: dict[int, tuple[int, ...]] = {}
        # The number of each world's mirror image.
        self._mirrored: dict[int, int] = {}
        self._numbers: dict[int, int] = {}
        self._states: list[int] = []
        self._parents = array("i")
        # The moves of all states, one after the other, and where those of each state end.
        self._next = array("i")
        self._ends = array("q")
        self._faults = 0

    def explore(self) -> Found:
        """Look at every state."""
        began = time.perf_counter()
        broken = self._search()
        trace: tuple[str, ...] = ()
        what = None
        if broken is not None:
            trace, what = self._story(*broken)
        depth, finished = self._depth(), sum(map(self._is_finished, range(len(self._states))))
        seconds = time.perf_counter() - began
        return Found(len(self._states), len(self._next) + self._faults, depth, finished, seconds, what, trace)

    def _search(self) -> tuple[int, str] | None:
        """The first state in which, or from which, a promise is broken, and that promise."""
        runs = tuple(RunRow(is_there=run != self._scope.started) for run in range(len(self._scope.plans)))
        nobody = self._processes.number(Process((None,) * len(runs)))
        self._meet(self._worlds.number(World(self._scope.faults, runs)), nobody, nobody, -1)
        at = 0
        while at < len(self._states):
            try:
                self._expand(at)
            except _BrokenError as broken:
                return at, broken.what
            at += 1
        stuck = self._stuck()
        return None if stuck is None else (stuck, ABSENT)

    @staticmethod
    def _pack(world: int, one: int, other: int) -> int:
        return world << 2 * _BITS | one << _BITS | other

    def _canonical(self, world: int, one: int, other: int) -> int:
        """The state or its mirror image, whichever comes first."""
        image = self._mirrored.get(world)
        if image is None:
            image = self._worlds.number(mirrored(self._worlds.values[world]))
            self._mirrored[world], self._mirrored[image] = image, world
        return min(self._pack(world, one, other), self._pack(image, other, one))

    def _meet(self, world: int, one: int, other: int, parent: int) -> int:
        state = self._canonical(world, one, other)
        number = self._numbers.setdefault(state, len(self._states))
        if number == len(self._states):
            self._states.append(state)
            self._parents.append(parent)
        return number

    def _expand(self, at: int) -> None:
        """All states one move away; those a fault leads to are met, and not counted on to come."""
        state = self._states[at]
        world, one, other = self._unpacked(state)
        for packed in self._of_pair(SLOTS, world, 0):
            self._next.append(self._meet(packed >> _BITS + 1, one, other, at))
        for packed in self._of_pair(0, world, one):
            self._count(self._meet(packed >> _BITS + 1, packed >> 1 & _MASK, other, at), packed & 1)
        for packed in self._of_pair(1, world, other):
            self._count(self._meet(packed >> _BITS + 1, one, packed >> 1 & _MASK, at), packed & 1)
        self._ends.append(len(self._next))

    def _count(self, number: int, is_fault: int) -> None:
        if is_fault:
            self._faults += 1
        else:
            self._next.append(number)

    def _of_pair(self, slot: int, world: int, process: int) -> tuple[int, ...]:
        key = self._pack(world, slot, process)
        known = self._moves.get(key)
        if known is None:
            known = self._moves[key] = tuple(self._worked_out(slot, world, process))
        return known

    def _worked_out(self, slot: int, world_number: int, process_number: int) -> Iterator[int]:
        world, process = self._worlds.values[world_number], self._processes.values[process_number]
        if slot < SLOTS and (trouble := check_process(process, worker_id_of(slot, process.generation), world)):
            raise _BrokenError(trouble, None)
        for move in self._moves_of(slot, process, world):
            trouble = move.breaks or check_world(self._scope, move.world)
            if trouble:
                raise _BrokenError(trouble, move.what)
            after = process_number if move.process is None else self._processes.number(move.process)
            yield self._worlds.number(move.world) << _BITS + 1 | after << 1 | move.is_fault

    def _moves_of(self, slot: int, process: Process, world: World) -> Iterator[Move]:
        if slot < SLOTS:
            return moves(self._scope, self._rules, slot, process, world)
        return moves_of_time(self._scope, world)

    # What was found

    def _is_finished(self, at: int) -> bool:
        return is_finished(self._worlds.values[self._states[at] >> 2 * _BITS])

    def _stuck(self) -> int | None:
        """The first state from which no end can be reached without a further fault.

        Most moves lead to states met later, so that looking from the last to the first is nearly enough.
        """
        reaches = bytearray(self._is_finished(at) for at in range(len(self._states)))
        has_changed = True
        while has_changed:
            has_changed = False
            end = len(self._next)
            for at in range(len(self._states) - 1, -1, -1):
                start = self._ends[at - 1] if at else 0
                if not reaches[at] and any(reaches[after] for after in self._next[start:end]):
                    reaches[at] = has_changed = True
                end = start
        stuck = reaches.find(0)
        return None if stuck < 0 else stuck

    def _depth(self) -> int:
        """How many moves lead to the state that is farthest from the beginning."""
        depths = array("i", bytes(4 * len(self._states)))
        for at, parent in enumerate(self._parents):
            depths[at] = depths[parent] + 1 if parent >= 0 else 0
        return max(depths)

    def _story(self, at: int, what: str) -> tuple[tuple[str, ...], str]:
        """How to get to a state and what is wrong with it; the slots keep their names on the way."""
        path = [at]
        while self._parents[path[-1]] >= 0:
            path.append(self._parents[path[-1]])
        states = [self._states[number] for number in reversed(path)]
        told, parts = [], self._unpacked(states[0])
        for state in states[1:]:
            move, parts = self._between(parts, state)
            told.append(move)
        world, *both = parts
        try:
            for slot, process in enumerate(both):
                list(self._worked_out(slot, world, process))
        except _BrokenError as broken:
            what, told = broken.what, [*told, *([broken.move] if broken.move else [])]
        return tuple(told), what

    @staticmethod
    def _unpacked(state: int) -> tuple[int, int, int]:
        return state >> 2 * _BITS, state >> _BITS & _MASK, state & _MASK

    def _between(self, parts: tuple[int, int, int], after: int) -> tuple[str, tuple[int, int, int]]:
        """The move that leads from here to that state, or to its mirror image."""
        world, *both = parts
        for slot in range(SLOTS + 1):
            process = self._processes.values[both[slot] if slot < SLOTS else 0]
            for move in self._moves_of(slot, process, self._worlds.values[world]):
                changed = list(both)
                if move.process is not None:
                    changed[slot] = self._processes.number(move.process)
                one, other = changed
                number = self._worlds.number(move.world)
                if self._canonical(number, one, other) == after:
                    return move.what, (number, one, other)
        raise AssertionError("a state was met by no move")


def explore(scope: Scope, rules: Rules | None = None) -> Found:
    """Every state of this world under these rules."""
    return Explorer(scope, rules or Rules()).explore()
