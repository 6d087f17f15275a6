"""Our own Python has a budget, measured with a store that costs nothing."""

from bench.bars import US_PER_RUN, US_PER_STEP
from bench.budget import measure


def test_a_run_and_a_step_stay_within_their_budget() -> None:
    """Where the disk is quick, this is what a user waits for; it grows unseen if nobody looks."""
    spent = measure()

    assert spent.us_per_run <= US_PER_RUN, spent
    assert spent.us_per_step <= US_PER_STEP, spent
