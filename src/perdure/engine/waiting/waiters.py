"""Waiters: callers in this process that wait for the ends of runs.

In:   runs to wait for; ends that this process knows of, and looks at the database for those that live elsewhere.
Out:  how a run ended, to everybody who waits for it; a line in the log when something keeps it from going on.

All of them at every look would cost a client that waits for 50,000 runs as many lookups twenty times a second. So a
look takes the oldest, for they are most likely to end next, and some of all others in turns; more of them when nothing
changes any more, so that those that have ended meanwhile are found soon.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from itertools import islice
from typing import TypeAlias

from perdure.clock import Clock
from perdure.engine.held import Holds
from perdure.engine.hindrances import Hindered
from perdure.engine.leasing.lease import Lease
from perdure.engine.ports import Ending, OwnedRun
from perdure.engine.reads import StoreReader
from perdure.engine.waiting.askers import Askers
from perdure.errors import NotOpen, RunUnreadable
from perdure.stores.port import Store
from perdure.stores.records import RunRow

# So many of the oldest, and so many of all in turns, are looked at in one bite; those that live here cost next to
# nothing, and so many may be among them.
OLDEST, TURN, LOOKED_THROUGH = 200, 300, 5000
# When for so many looks nothing has changed it is quiet, and a turn is so much longer.
QUIET_LOOKS, QUIET_TIMES = 2, 8
# One of so many that were looked at has ended: then it is worth it to look at the next ones at once.
MANY_ENDED = 10
# At so many of them it is looked at once whether anything keeps them from going on.
FEW = 10

# A caller that waits: the namespace of the run, and what to tell.
Waiter: TypeAlias = "tuple[str, asyncio.Future[Ending]]"


class Waiters:
    """Knows who waits for which run, and tells them of its end."""

    def __init__(self, store: Store, clock: Clock, lease: Lease, reader: StoreReader, hindered: Hindered) -> None:
        self._store = store
        self._clock = clock
        self._lease = lease
        self._reader = reader
        self.by_run: dict[str, list[Waiter]] = {}
        self.askers = Askers(store, lease)
        self.turns = Turns(self.by_run, self._is_live)
        self._holds = Holds()
        self._hindered = hindered
        # Awaited runs of which it was looked in this round whether anything keeps them from going on.
        self._looked_at: set[str] = set()

    async def wait(self, namespace: str, run_id: str, owned: OwnedRun | None = None) -> Ending:
        """Until the run has ended; `owned` is its handle, if it was started here."""
        if owned is not None and owned.ending is not None:
            return owned.ending
        future: asyncio.Future[Ending] = asyncio.get_running_loop().create_future()
        waiter = (namespace, future)
        # Registered before the look, so that an end in between is not missed.
        self.by_run.setdefault(run_id, []).append(waiter)
        try:
            if not self._is_live(run_id):
                self.turns.come()
                row = await self._reader.read(namespace, run_id)
                if row.closed_at is not None:
                    return self._reader.ending_of(row)
                if row.held is not None:
                    self._holds.tell(row)
                self._hindered.tell_rest(row, self._clock.now())
            return await future
        finally:
            self._forget(run_id, waiter)

    def _forget(self, run_id: str, waiter: Waiter) -> None:
        waiters = self.by_run.get(run_id)
        # One that was told is not among those that came since.
        if waiters is not None and waiter in waiters:
            waiters.remove(waiter)
            if not waiters:
                del self.by_run[run_id]

    def _is_live(self, run_id: str) -> bool:
        return self._lease.host is not None and self._lease.host.is_live(run_id)

    def tell(self, run_id: str, ending: Ending) -> None:
        """The run has ended so."""
        self.askers.ended(run_id)
        self._holds.forget(run_id)
        for _, future in self.by_run.pop(run_id, ()):
            if not future.done():
                future.set_result(ending)

    def _tell_ended_or_held(self, found: RunRow | RunUnreadable) -> None:
        """A run that is waited for has ended or is held; one whose end cannot be read is waited for no longer."""
        try:
            if isinstance(found, RunUnreadable):
                raise found
            if found.closed_at is None:
                self._holds.tell(found)
            else:
                self.tell(found.run_id, self._reader.ending_of(found))
        except RunUnreadable as error:
            for _, future in self.by_run.pop(error.run_id, ()):
                if not future.done():
                    future.set_exception(error)

    async def look(self) -> list[str]:
        """Look at some of those that are waited for; at more of them at once while many have ended."""
        looked_at: list[str] = []
        is_worth_it = True
        while is_worth_it and (awaited := self.turns.bite()):
            found = await self._store.reads.ended_or_held(awaited)
            for row in found:
                self._tell_ended_or_held(row)
            is_worth_it = self.turns.is_due and MANY_ENDED * len(found) >= len(awaited)
            looked_at += awaited
        return looked_at

    async def tell_hindered(self, awaited: Sequence[str]) -> None:
        """Say what keeps a few of these from going on, each in its turn: there may be very many."""
        left = [run_id for run_id in awaited if run_id not in self._looked_at]
        if not left:
            self._looked_at.clear()
            left = list(awaited)
        self._looked_at.update(left[:FEW])
        for run_id in left[:FEW]:
            with suppress(RunUnreadable):
                await self._look_for_hindrance(run_id)

    async def _look_for_hindrance(self, run_id: str) -> None:
        for namespace, _ in self.by_run.get(run_id, ())[:1]:
            served, now = await self._reader.serving(namespace), self._clock.now()
            row = await self._store.reads.run(namespace, run_id)
            if row is not None:
                self._hindered.look_at(row, served, now)

    def close(self) -> None:
        """Tell everybody that nothing is waited for any more."""
        self.askers.close()
        for _, future in [waiter for waiters in self.by_run.values() for waiter in waiters]:
            if not future.done():
                future.set_exception(NotOpen())
                # The one that waited may be gone by now; nobody needs to be told of that.
                future.exception()


class Turns:
    """Takes turns among the runs that are waited for; after a change everybody has a turn once more."""

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
        """A run that lives elsewhere is waited for."""
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
