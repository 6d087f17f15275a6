"""Awaited: which of the runs that somebody here waits for are looked at next.

In:   the runs that are waited for, and which of them live in this process.
Out:  bites of those that live elsewhere.

All of them at every look would cost a client that waits for 50,000 runs as many lookups twenty times a second. So a
look takes the oldest, for they are most likely to end next, and some of all others in turns; more of them when nothing
changes any more, so that whoever has ended meanwhile is found soon.
"""

from collections import deque
from collections.abc import Callable, Collection
from itertools import islice

# So many of the oldest, and so many of all in turns, are looked at in one bite; those that live here cost next to
# nothing, and so many may be among them.
OLDEST, TURN, LOOKED_THROUGH = 200, 300, 5000
# When for so many looks nothing has changed it is quiet, and a turn is so much longer.
QUIET_LOOKS, QUIET_TIMES = 2, 8


class Awaited:
    """Takes turns; after a change everybody has a turn once more."""

    def __init__(self, waited_for: Collection[str], is_live: Callable[[str], bool]) -> None:
        self._waited_for = waited_for
        self._is_live = is_live
        self._turn: deque[str] = deque()
        self._owed = 0
        self._looks = 0
        self._are_some_elsewhere = False

    @property
    def is_due(self) -> bool:
        """Whether there are some that nobody has looked at since something changed."""
        return self._owed > 0 and bool(self._waited_for)

    @property
    def are_some_elsewhere(self) -> bool:
        """Whether some live elsewhere, as far as the last looks and who has come since tell."""
        return self._are_some_elsewhere and bool(self._waited_for)

    def come(self) -> None:
        """Somebody waits for a run that lives elsewhere."""
        self._are_some_elsewhere = True

    def something_changed(self) -> None:
        """All of them may have ended."""
        self._looks = 0
        if len(self._waited_for) <= OLDEST + TURN:
            self._turn.clear()
        # Those that have had their turn get another one after the rest of this one.
        self._owed = len(self._turn) + len(self._waited_for)

    def bite(self) -> list[str]:
        """The next to look at."""
        if not self._turn:
            self._turn.extend(self._waited_for)
            self._are_some_elsewhere = False
        self._looks += 1
        turn = TURN if self._looks <= QUIET_LOOKS else QUIET_TIMES * TURN
        oldest = [run_id for run_id in islice(self._waited_for, OLDEST) if not self._is_live(run_id)]
        found = dict.fromkeys(oldest)
        for _ in range(min(LOOKED_THROUGH, len(self._turn))):
            run_id = self._turn.popleft()
            self._owed -= 1
            if run_id in self._waited_for and not self._is_live(run_id):
                found[run_id] = None
            if len(found) >= OLDEST + turn:
                break
        self._are_some_elsewhere |= bool(found)
        return list(found)
