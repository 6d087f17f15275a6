"""Time: a millisecond is over only when it is."""

from perdure.clock import SystemClock
from perdure.testing import VirtualClock


def test_a_moment_is_not_over_within_its_own_millisecond() -> None:
    """A timer set late within one would else fire early within another."""
    clock = SystemClock()
    looks = [(at := clock.now(), clock.is_over(at), clock.now()) for _ in range(2000)]
    # Only those looks tell that began and ended within one millisecond.
    within = [is_over for began, is_over, ended in looks if began == ended]
    assert within
    assert not any(within)
    assert clock.is_over(clock.now() - 1)
    assert not clock.is_over(clock.now() + 60_000)


def test_virtual_time_has_no_moments_between() -> None:
    clock = VirtualClock()
    assert clock.is_over(clock.now())
    assert not clock.is_over(clock.now() + 1)
