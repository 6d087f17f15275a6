"""What is checked of drawn programs: many seeds on this Python, and histories that were kept."""

import contextlib
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from tests.programs import histories
from tests.programs.drawing import MOST_PARTS, drawn
from tests.programs.world import Differs, Recording, check_prefixes, check_whole, leftovers, record


def recorded(seed: int, most_parts: int = MOST_PARTS) -> Recording:
    """The recording of this seed; a recovery that fails says how to repeat it."""
    with repeatable(seed):
        return record(drawn(seed, most_parts), seed)


@contextlib.contextmanager
def repeatable(seed: int) -> Iterator[None]:
    try:
        yield
    except Differs as difference:
        command = f"{Path(sys.executable).name} -m tests.programs check --seed {seed}"
        raise Differs(f"{difference}\n repeat it with: {command}") from None


def check(seeds: Iterable[int]) -> int:
    """Record each program and replay every prefix of its history; answers how many events there were."""
    count = 0
    for seed in seeds:
        recording = recorded(seed)
        with repeatable(seed):
            check_prefixes(recording)
        count += len(recording.events)
    left = leftovers()
    if left:
        raise Differs(f"left in memory: {left}")
    return count


def replay(paths: Iterable[Path]) -> list[str]:
    """What differs in the files, when they are replayed here."""
    found = []
    for path in paths:
        for recording in histories.read(path):
            try:
                check_whole(recording)
            except Differs as difference:
                found.append(f"{path.name}, seed {recording.seed}: {difference}")
    return found
