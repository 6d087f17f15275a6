"""Pace: how many runs a bulk action asks at once, and how long it rests, so that others wait little for it.

In:   whether others wrote since the last bite who must wait for it, and how long each took.
Out:  the size of the next one, and the rest before it.
"""

# So many runs are asked at once while nobody else writes, and while others do.
LARGE, SMALL = 50, 20
# Others that were seen to write are believed to go on for so many bites; they rest for this share of what each took.
BELIEVED = 20
REST_SHARE = 0.6
# Enough for what others have to write; a disk that stands still for a second says nothing of them.
LONGEST_REST = 0.01


class Pace:
    """Large bites one after the other; small ones with a rest between them while others are at work."""

    def __init__(self) -> None:
        self._careful = 0

    @property
    def size(self) -> int:
        """How many runs to ask next."""
        return SMALL if self._careful else LARGE

    def note(self, *, others_wrote: bool) -> None:
        """Whether anybody wrote between the last bite and this one."""
        self._careful = BELIEVED if others_wrote else max(self._careful - 1, 0)

    def rest_after(self, took: float) -> float:
        """How long to rest after a bite that took so long, in seconds."""
        return min(REST_SHARE * took, LONGEST_REST) if self._careful else 0.0
