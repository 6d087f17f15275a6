"""A subscriber: what it wants to know of, and what it has not been told yet.

In:   rows of runs that have changed, and pages of runs that match.
Out:  one change at a time, of each run the newest; where to go on after it.

However slow it is, it holds one entry per run: a run that changes again is told as it stands then, in its old place.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from perdure.clock import Clock
from perdure.engine.ports.subscriptions import RunChange
from perdure.engine.subscriptions.cursors import Cursor
from perdure.engine.subscriptions.matching import Selection
from perdure.kernel.filters import RunFields
from perdure.kernel.position import Position
from perdure.stores.records import RunRow

# Clocks of different processes differ by less than this.
SKEW_MS = 60_000


class Untold(NamedTuple):
    """What is to be told of a run, and the position before the change that put it here."""

    row: RunRow
    left: bool
    before: Position


class ListPage(NamedTuple):
    """Some of the runs that match, newest first, and the run it ends with; None when there are no more."""

    rows: list[RunRow]
    listed_to: str | None


class Subscriber:
    """A subscriber."""

    def __init__(self, wanted: Selection, clock: Clock, position: Position, after: Cursor | None) -> None:
        self.wanted = wanted
        self._clock = clock
        # Everything up to here was told, or waits below.
        self.position = position
        self._waiting: dict[str, Untold] = {}
        # Of open runs whether they matched when they were told last; others did not, or nobody knows.
        self._known: dict[str, bool] = {}
        # Runs that are older may have been told by another process.
        self._told_before = None if after is None else after.at + SKEW_MS
        self._listed_to: str | None = "" if after is None else after.listed_to
        self._page: deque[RunRow] = deque()
        self._page_ends: str | None = None
        # Transactions that may have changed runs without a word in the log: when they have ended, all is listed again.
        self.unlogged: frozenset[int] = frozenset()
        self.error: Exception | None = None
        self._news = asyncio.Event()

    # What others tell it

    def offer(self, row: RunRow, fields: RunFields, before: Position) -> None:
        """A run has changed since a position."""
        had_matched = self._known.get(row.run_id)
        is_match = self.wanted.matches(row, fields)
        if not (is_match or had_matched or (had_matched is None and self._may_have_told(row, fields))):
            return
        self._remember(row, is_match)
        entry = self._waiting.get(row.run_id)
        self._waiting[row.run_id] = Untold(row, not is_match, before if entry is None else entry.before)
        self._news.set()

    def offer_first(self, rows: list[tuple[RunRow, RunFields]], before: Position) -> None:
        """What had changed before all that was offered so far."""
        later, self._waiting = self._waiting, {}
        for row, fields in rows:
            self.offer(row, fields, before)
        for run_id, entry in later.items():
            self._waiting[run_id] = entry._replace(before=before) if run_id in self._waiting else entry

    def list_again(self) -> list[str]:
        """Tell of everything once more; the runs among it that may not match any more."""
        self._listed_to, self._page_ends = "", None
        self._page.clear()
        self.unlogged = frozenset()
        self._news.set()
        return [run_id for run_id, is_match in self._known.items() if is_match]

    def fail(self, error: Exception) -> None:
        """Nothing more comes."""
        self.error = error
        self._news.set()

    def _may_have_told(self, row: RunRow, fields: RunFields) -> bool:
        """Whether the subscriber may know the run, although that is not remembered here."""
        is_older = self._told_before is not None and row.created_at <= self._told_before
        has_ended_before = row.closed_at is not None and row.updated_at > row.closed_at
        return (is_older or has_ended_before) and self.wanted.may_have_matched(row, fields)

    def _remember(self, row: RunRow, is_match: bool) -> None:
        if row.closed_at is not None:
            self._known.pop(row.run_id, None)
        elif is_match or self._told_before is not None:
            self._known[row.run_id] = is_match
        else:
            self._known.pop(row.run_id, None)

    # What it tells

    async def next(self, page_after: Callable[[Selection, str], Awaitable[ListPage]]) -> RunChange:
        """The next change: first those of the list, then what waits, or the next to come."""
        while True:
            if self.error is not None:
                raise self.error
            if self._page:
                return self._next_listed(self._page.popleft())
            if self._listed_to is not None:
                await self._turn_page(page_after, self._listed_to)
            elif self._waiting:
                entry = self._waiting.pop(next(iter(self._waiting)))
                return RunChange(entry.row, self.cursor, entry.left)
            else:
                self._news.clear()
                await self._news.wait()

    async def _turn_page(self, page_after: Callable[[Selection, str], Awaitable[ListPage]], after: str) -> None:
        page = await page_after(self.wanted, after)
        if self._listed_to != after:
            # It was told to begin anew meanwhile.
            return
        self._page.extend(page.rows)
        self._page_ends = page.listed_to
        if not page.rows:
            self._listed_to = page.listed_to

    def _next_listed(self, row: RunRow) -> RunChange:
        self._remember(row, is_match=True)
        self._listed_to = row.run_id if self._page else self._page_ends
        return RunChange(row, self.cursor, left=False)

    @property
    def cursor(self) -> str:
        """Where to go on after all that was told so far."""
        told_to = next(iter(self._waiting.values())).before if self._waiting else self.position
        return str(Cursor(told_to, self._clock.now(), self._listed_to))
