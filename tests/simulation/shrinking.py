"""Shrinking: from a schedule that fails to the shortest tape found that fails in the same way."""

from collections.abc import Sequence

from tests.simulation.running import Failure, lived
from tests.simulation.simulator import Tape


class _Tries:
    """Runs tapes, so many at most."""

    def __init__(self, seed: int, invariant: str, left: int) -> None:
        self._seed = seed
        self._invariant = invariant
        self.left = left

    def fails_alike(self, tape: list[int]) -> bool:
        if self.left == 0:
            return False
        self.left -= 1
        found = lived(Tape(self._seed, tape))
        return isinstance(found, Failure) and found.invariant == self._invariant


def shrink(seed: int, choices: Sequence[int], invariant: str, tries: int) -> list[int]:
    """A tape that violates the same invariant, with as little in it as so many tries could find."""
    trying = _Tries(seed, invariant, tries)
    best = _trimmed(list(choices))
    size = max(1, len(best) // 2)
    while size and trying.left:
        shorter = _pass(best, size, trying)
        size = size if len(shorter) < len(best) and size > 8 else size // 2
        best = shorter
    return best


def _pass(tape: list[int], size: int, trying: _Tries) -> list[int]:
    """Try to leave out, or to make dull, each piece of this size."""
    at = 0
    while at < len(tape) and trying.left:
        for piece in ([], [0] * min(size, len(tape) - at)):
            candidate = _trimmed([*tape[:at], *piece, *tape[at + size :]])
            if candidate != tape and trying.fails_alike(candidate):
                tape = candidate
                break
        else:
            at += size
            continue
        if piece:
            at += size
    return tape


def _trimmed(tape: list[int]) -> list[int]:
    """After its end a tape goes on with zeros anyway."""
    end = len(tape)
    while end and tape[end - 1] == 0:
        end -= 1
    return tape[:end]


def written(tape: Sequence[int]) -> str:
    """A tape as text: choices with spaces between, zeros in a row as 0x17."""
    words: list[str] = []
    zeros = 0
    for choice in [*tape, -1]:
        if choice == 0:
            zeros += 1
            continue
        if zeros:
            words.append("0" if zeros == 1 else f"0x{zeros}")
            zeros = 0
        if choice > 0:
            words.append(str(choice))
    return " ".join(words)


def read(text: str) -> list[int]:
    """The tape that was written so."""
    tape: list[int] = []
    for word in text.split():
        choice, _, times = word.partition("x")
        tape += [int(choice)] * int(times or 1)
    return tape
