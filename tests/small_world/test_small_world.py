"""The small world: every interleaving of two workers, checked in every state."""

from functools import cache

import pytest

from tests.small_world.explore import Found, explore
from tests.small_world.model import FULL, SMALL, TIMED, RunRow, Scope, TakeOver, WorkerRow, World, mirrored
from tests.small_world.mutants import MUTANTS


@cache
def small() -> Found:
    return explore(SMALL)


def test_every_promise_is_kept_in_every_state_of_a_small_world() -> None:
    """Random faults find what is likely; only looking at all states shows that nothing was left out."""
    found = small()
    assert found.broken is None, "\n".join(found.trace)
    # Fewer would mean that something cannot happen any more that could.
    assert found.states > 15_000
    assert found.finished > 1_000


@pytest.mark.parametrize("name", MUTANTS)
def test_every_rule_is_missed_when_it_is_switched_off(name: str) -> None:
    """A world that is sound without a rule does not look at what the rule is for."""
    found = explore(SMALL, MUTANTS[name])
    assert found.broken is not None
    assert found.states <= small().states
    print(f"{name}: {found.broken}", *found.trace, sep="\n  ")


def test_the_mirror_image_of_a_world_is_the_world_with_its_slots_exchanged() -> None:
    """Only one of the two is looked at; were they not alike, half of the states would be left out."""
    row = RunRow(is_there=True, owner="a1", wake_at=None)
    rows = (WorkerRow("a1", 1), WorkerRow("a2", 1), WorkerRow("b1", 2))
    world = World(2, (row,), workers=rows, locks=("a2", "b1"), post_at=0, reads=(TakeOver("b1", 2), None))
    image = mirrored(world)
    assert image.runs[0].owner == "b1"
    assert image.workers == (WorkerRow("a1", 2), WorkerRow("b1", 1), WorkerRow("b2", 1))
    assert (image.locks, image.post_at, image.reads) == (("a1", "b2"), 1, (None, TakeOver("a1", 2)))
    assert mirrored(image) == world


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("scope", [TIMED, FULL], ids=["timed", "full"])
def test_every_promise_is_kept_in_every_state_of_a_larger_world(scope: Scope) -> None:
    """Two runs share a process, its batches and its losses."""
    found = explore(scope)
    assert found.broken is None, "\n".join(found.trace)
