"""Pace: how many runs a bulk action asks at once, and how long it rests, so that others wait little for it.

In:   how long each bite took.
Out:  the size of the next one, and the rest before it.
"""

# So many runs are asked at once while nobody else writes, and while others do.
LARGE, SMALL = 50, 15
# A bite that takes so many times as long per run as the quickest one had to wait for others. Each has a commit of its
# own, which a small one feels more.
SLOW_LARGE, SLOW_SMALL = 1.5, 3.0
# Enough for what others have to write; a disk that stands still for a second says nothing of them.
LONGEST_REST = 0.01


class Pace:
    """Large bites one after the other; small ones with a rest between them while others are at work."""

    def __init__(self) -> None:
        self.size = LARGE
        self._quickest = float("inf")

    def rest_after(self, took: float) -> float:
        """How long to rest after a bite that took so long: as long as that, so that half of the time is for others."""
        per_run = took / self.size
        self._quickest = min(self._quickest, per_run)
        is_slow = per_run > (SLOW_LARGE if self.size == LARGE else SLOW_SMALL) * self._quickest
        self.size = SMALL if is_slow else LARGE
        return min(took, LONGEST_REST) if is_slow else 0.0
