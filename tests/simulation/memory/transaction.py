"""A transaction: a batch on its way into the tables, one statement at a time.

In:   the tables and a batch.
Out:  after each step, what came of it: a statement done, a wait for another transaction, or the outcome.

Whoever holds several may take their steps in any order: they meet as on Postgres under read
committed. A transaction that is abandoned, or closes a circle of waiting ones, leaves nothing.
"""

from collections.abc import Iterator
from typing import TypeAlias

import msgspec

from perdure.errors import StoreUnavailable
from perdure.stores.answers import Committed, Failed, Outcome, Undone
from perdure.stores.operations import Batch
from tests.simulation.memory.executor import write_batch
from tests.simulation.memory.tables import Tables
from tests.simulation.memory.view import Blocked, Progress, Steps, View


class Done(msgspec.Struct, frozen=True):
    """The transaction has ended: committed, or with nothing written."""

    outcome: Outcome | Undone


Step: TypeAlias = Progress | Blocked | Done


class Transaction(View):
    """One batch; the commit is a step of its own."""

    def __init__(self, tables: Tables, batch: Batch, url: str = "memory://") -> None:
        super().__init__(tables)
        self.batch = batch
        self.outcome: Outcome | Undone | None = None
        self._url = url
        self._statements: Steps[Outcome | Undone] = write_batch(self, batch)

    @property
    def is_open(self) -> bool:
        """Whether there are steps left."""
        return self in self.tables.open

    @property
    def is_blocked(self) -> bool:
        """Whether the next step would find it still waiting."""
        return self.waits_for is not None and self.waits_for in self.tables.open

    def step(self) -> Step:
        """Make one statement, or look again whether the one that waits may go on; the last step commits."""
        try:
            said = next(self._statements)
        except StopIteration as end:
            return self._finish(end.value)
        self.waits_for = None
        if isinstance(said, Blocked):
            self.waits_for = said.by
            if self._closes_a_circle():
                trouble = "a deadlock was broken by giving up this transaction; nothing was changed, try again"
                return self._finish(Failed(StoreUnavailable(self._url, trouble)))
        return said

    def steps(self) -> Iterator[Step]:
        """One step after another until it is done."""
        while self.is_open:
            yield self.step()

    def run(self) -> Outcome | Undone | Blocked:
        """All steps that are left, or those up to where it must wait."""
        while isinstance(step := self.step(), Progress):
            pass
        return step.outcome if isinstance(step, Done) else step

    def abandon(self) -> None:
        """The process died: all its changes and locks vanish."""
        if self.is_open:
            self._statements.close()
            self.roll_back()

    def _finish(self, outcome: Outcome | Undone | None) -> Done:
        if outcome is None:
            assert self.outcome is not None, "the transaction was abandoned"
            return Done(self.outcome)
        self.outcome = outcome
        if isinstance(outcome, Committed):
            self.commit()
        else:
            self._statements.close()
            self.roll_back()
        return Done(outcome)

    def _closes_a_circle(self) -> bool:
        other = self.waits_for
        seen = 0
        while other is not None and other is not self and seen < len(self.tables.open):
            other = other.waits_for
            seen += 1
        return other is self
