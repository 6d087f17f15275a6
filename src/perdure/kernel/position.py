"""Positions in the log of changes: which transactions a look has seen, so that the next one goes on without a gap.

In:   the text of a snapshot, as Postgres writes it: "first open : end : all open ones".
Out:  what it has seen: every transaction before `end`, but for those that were still open.

A transaction that commits late is one of the open ones, and is looked for by its number until it is seen. In a
database that has one writer at a time nothing is ever open, and the numbers are those of the changes.
"""

import msgspec


class Position(msgspec.Struct, frozen=True):
    """All transactions before `end` are seen, but for these that were open."""

    end: int
    open: frozenset[int] = frozenset()

    @classmethod
    def parse(cls, text: str) -> "Position":
        """The position that a text says; ValueError for one that says none."""
        _, end, still_open = text.split(":")
        return cls(int(end), frozenset(int(each) for each in still_open.split(",") if each))

    def __str__(self) -> str:
        still_open = sorted(self.open)
        return f"{still_open[0] if still_open else self.end}:{self.end}:{','.join(map(str, still_open))}"

    def has_seen(self, transaction_id: int) -> bool:
        """Whether that transaction was committed, or undone, by then."""
        return transaction_id < self.end and transaction_id not in self.open

    def covers(self, earlier: "Position") -> bool:
        """Whether everything is seen that the other one has seen."""
        return self.end >= earlier.end and not any(map(earlier.has_seen, self.open))
