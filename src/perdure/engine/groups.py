"""Groups of a run's life: its start, that of a child, its advances and its end.

In:   the operations of one change.
Out:  after the commit: the host adopts the run, effects begin, parents and callers that wait are told.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from perdure.engine.arrivals import Arrivals, deliver
from perdure.engine.committer import Group, Settlement
from perdure.engine.ports import Advance, Host, OwnedRun
from perdure.kernel.events import Event
from perdure.stores.answers import APPLIED, Applied, Broken, Moved, Posted, Taken
from perdure.stores.operations import Operation
from perdure.stores.records import RunRow


class StoreAdvance(Group, Advance):
    """An event on its way to disk, and what happens once it is there."""

    __slots__ = ("_effect", "_effect_args", "_host", "_run_id", "event")

    of_owner = True
    patient = True

    def __init__(self, host: Host | None, run_id: str, event: Event, operations: Sequence[Operation]) -> None:
        self.operations = operations
        self.event = event
        self._host = host
        self._run_id = run_id
        self._effect: Callable[..., None] | None = None

    def then(self, effect: Callable[..., None], *args: Any) -> None:
        """Do this after the commit; the last one given is done."""
        self._effect = effect
        self._effect_args = args

    def settle(self, answer: Settlement) -> None:
        if answer is APPLIED or isinstance(answer, Applied):
            if self._effect is not None:
                self._effect(*self._effect_args)
        elif isinstance(answer, Broken) and self._host is not None:
            self._host.broken(self._run_id, answer.trouble)


class StoreClosing(StoreAdvance):
    """The last event of a run whose end concerns others; `ended` gets what its parent was posted."""

    __slots__ = ("_ended",)

    def __init__(
        self,
        host: Host | None,
        run_id: str,
        event: Event,
        operations: Sequence[Operation],
        ended: Callable[[Posted | None], None],
    ) -> None:
        super().__init__(host, run_id, event, operations)
        self._ended = ended

    def settle(self, answer: Settlement) -> None:
        if isinstance(answer, Applied):
            self._ended(answer.value if isinstance(answer.value, Posted) else None)
        else:
            super().settle(answer)


class StartGroup(Group):
    """A new run on its way to disk, for a host that adopts it then, or for the worker that claims it."""

    __slots__ = ("_arrivals", "_host", "_hosted", "_owned", "settled")

    def __init__(
        self,
        operations: Sequence[Operation],
        owned: OwnedRun,
        host: Host | None,
        arrivals: Arrivals,
        *,
        hosted: bool,
    ) -> None:
        self.operations = operations
        self._arrivals = arrivals
        self._owned = owned
        self._host = host
        self._hosted = hosted
        self.settled: asyncio.Future[Settlement] = asyncio.Future()

    @property
    def of_owner(self) -> bool:  # type: ignore[override]  # an attribute there
        return self._hosted

    def settle(self, answer: Settlement) -> None:
        # Told first: whatever becomes of the run, its start is on disk.
        if not self.settled.done():
            self.settled.set_result(answer)
        is_applied = answer is APPLIED or isinstance(answer, Applied)
        if self._host is None:
            return
        if not self._hosted:
            if is_applied:
                self._host.look_around()
            return
        early = self._arrivals.early.pop(self._owned.run_id, ())
        if not is_applied:
            self._host.forgo()
            return
        self._host.adopt(self._owned, None)
        if early:
            deliver(self._host, self._owned.run_id, early)


class ChildStart(StartGroup):
    """A child on its way to disk: only its parent's owner may start it, and will wait until it can."""

    __slots__ = ("_again", "_then")

    patient = True

    def __init__(
        self,
        operations: Sequence[Operation],
        owned: OwnedRun,
        host: Host | None,
        arrivals: Arrivals,
        *,
        hosted: bool,
        then: Callable[[RunRow | None], None],
        again: Callable[[], None],
    ) -> None:
        super().__init__(operations, owned, host, arrivals, hosted=hosted)
        self._then = then
        self._again = again

    @property
    def of_owner(self) -> bool:  # type: ignore[override]  # an attribute there
        return True

    def settle(self, answer: Settlement) -> None:
        self._tell(answer)
        super().settle(answer)

    def _tell(self, answer: Settlement) -> None:
        if isinstance(answer, Taken):
            # It may be this very child, started by an owner that died right after.
            self._then(None if answer.run.run_id == self._owned.run_id else answer.run)
        elif isinstance(answer, Applied):
            self._then(None)
        elif isinstance(answer, Moved):
            self._again()
        elif isinstance(answer, Broken):
            self._then(None)
            if self._host is not None and self._owned.traits.parent_id is not None:
                self._host.broken(self._owned.traits.parent_id, answer.trouble)
