"""Shrinking: from a schedule that fails to the shortest tape found that fails in the same way."""

import time
from collections.abc import Callable, Sequence

from perdure.testing.simulation import Tape
from tests.simulation.running import Failure, lived


def shrink(seed: int, choices: Sequence[int], invariant: str, seconds: float) -> list[int]:
    """A tape that violates the same invariant, with as little in it as could be found in this time."""
    deadline = time.monotonic() + seconds

    def fails(tape: list[int]) -> bool:
        found = lived(Tape(seed, tape))
        return isinstance(found, Failure) and found.invariant == invariant

    best = _trimmed(list(choices))
    size = max(1, len(best) // 2)
    while size and time.monotonic() < deadline:
        shorter = _pass(best, size, fails, deadline)
        size = size if len(shorter) < len(best) and size > 8 else size // 2
        best = shorter
    return best


def _pass(tape: list[int], size: int, fails: Callable[[list[int]], bool], deadline: float) -> list[int]:
    """Try to leave out, or to make dull, each piece of this size."""
    at = 0
    while at < len(tape) and time.monotonic() < deadline:
        for piece in ([], [0] * min(size, len(tape) - at)):
            candidate = _trimmed([*tape[:at], *piece, *tape[at + size :]])
            if candidate != tape and fails(candidate):
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
