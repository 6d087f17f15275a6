"""Our own Python has a budget, measured with a store that costs nothing."""

from bench.bars import US_PER_RUN, US_PER_STEP
from bench.budget import measure

# `make bench` reports against the bars themselves. Here a machine that others use must not
# fail a change that costs nothing, but one that costs half as much again must not pass.
LEEWAY = 1.8


def test_a_run_and_a_step_do_not_grow_dearer() -> None:
    """Where the disk is quick, this is what a user waits for; it grows unseen if nobody looks."""
    spent = measure()

    assert spent.us_per_run <= LEEWAY * US_PER_RUN, spent
    assert spent.us_per_step <= LEEWAY * US_PER_STEP, spent
