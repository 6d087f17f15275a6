"""A store that forgets: what is left of a run's cost is our own Python.

The worker registers in a real database in memory; from `stop_writing` on every batch
is answered as committed, at once, and nothing of it is kept.
"""

from collections.abc import Callable

from perdure.stores.answers import Committed, Outcome
from perdure.stores.operations import Batch
from perdure.stores.sqlite.store import SqliteStore

_COMMITTED = Committed({})


class NullStore(SqliteStore):
    """A database in memory that stops to write when it is told to; for measuring, never for keeping."""

    def __init__(self) -> None:
        super().__init__(None)
        self._writes = True

    def stop_writing(self) -> None:
        """Answer every batch from now on, and write none."""
        self._writes = False

    def commit(self, batch: Batch, done: Callable[[Outcome], None]) -> None:
        if self._writes:
            super().commit(batch, done)
        else:
            done(_COMMITTED)
