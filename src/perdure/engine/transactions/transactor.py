"""The transactor: runs the code of transactional activities, and commits it together with the event that records it.

In:   an owned run, and code whose outcome answers one of its calls.
Out:  the event, when both are on disk; else nothing of either is, and why.

The event is decided when the code has returned. Everything the run did before must be on disk by then, and nothing
else may happen to the run until it is known what became of the transaction: its events have numbers without gaps.
"""

import asyncio
from collections.abc import Sequence

from perdure.clock import Clock, pause
from perdure.engine.committer import BUSY_AGAIN_MS, Committer, OwnersGroup, Unavailable
from perdure.engine.leasing.lease import Lease
from perdure.engine.ports import ActivityCode, Gone, OwnedRun, Transacted, Unwritten, Written
from perdure.engine.transactions.turns import Ended, Turn
from perdure.kernel.commands import RecordOutcome
from perdure.kernel.events import Event
from perdure.kernel.run import decide, evolve
from perdure.stores import rows
from perdure.stores.answers import Applied, Committed, Failed, Fenced, Outcome, Undone, Unknown
from perdure.stores.operations import AppendEvent, Operation
from perdure.stores.port import Store


class _Attempt:
    """One run of the code, as the store sees it."""

    def __init__(self, transactor: "StoreTransactor", owned: OwnedRun, code: ActivityCode) -> None:
        self._transactor = transactor
        self._owned = owned
        self._code = code
        self._command: RecordOutcome | None = None
        self.event: Event | None = None
        self.is_accepted = False
        self.activity = code.activity
        self.is_async = code.is_async
        self.run = code.run
        self.unwanted = code.unwanted

    async def ready(self) -> None:
        await self._transactor.ready(self._owned.run_id)

    def accept(self, value: object) -> bool:
        if self._transactor.owns(self._owned):
            self._command = self._code.accept(value)
        self.is_accepted = self._command is not None
        if self.is_accepted:
            self._transactor.begin_commit(self._owned.run_id)
        return self.is_accepted

    async def settled(self) -> None:
        await self._transactor.settled(self._owned.run_id)

    def groups(self) -> Sequence[Sequence[Operation]] | None:
        owned, command = self._owned, self._command
        if command is None or not self._transactor.owns(owned):
            return None
        event = decide(owned.state, command, self._transactor.clock.latest())
        if not isinstance(event, Event):
            return None
        self.event = event
        return self._transactor.groups_of(owned, event)


class StoreTransactor:
    """Transactional activities over a store."""

    def __init__(self, store: Store, committer: Committer, clock: Clock, lease: Lease) -> None:
        self._transactions = store.activity_transactions
        self.is_alone = self._transactions.is_alone
        self.committer = committer
        self.clock = clock
        self._lease = lease
        # The runs that have a transaction whose commit is under way, and who waits for its end.
        self._committing: dict[str, list[asyncio.Future[None]]] = {}

    def connection_type(self, *, is_async: bool) -> str | None:
        """The type of connection that such code gets, as people import it; None when there is none for it."""
        return self._transactions.connection_type(is_async=is_async)

    def refusal(self, activity: str, *, is_async: bool) -> str | None:
        """Why such an activity cannot run here; None when it can."""
        if self.connection_type(is_async=is_async) is not None:
            return None
        return f"the activity {activity!r} is an `async def`; on SQLite a transactional one is a plain `def`"

    async def run(self, owned: OwnedRun, code: ActivityCode) -> Transacted:
        """Run the code inside a transaction, and commit that with the event that records its outcome."""
        if not self.owns(owned):
            return Gone()
        attempt, epoch = _Attempt(self, owned, code), self.committer.epoch
        told: asyncio.Future[Outcome | Ended] = asyncio.get_running_loop().create_future()

        def tell(ended: Outcome | Ended) -> None:
            # Whoever waited may have been cancelled, with a worker that ends at once.
            if not told.done():
                told.set_result(ended)

        if self.is_alone:
            self.committer.submit(Turn(self._transactions, attempt, tell))
        else:
            self._transactions.transact(attempt, self._lease.worker_id, epoch, tell)
        try:
            ended = await told
            return await self._transacted(owned, attempt.event, epoch, ended)
        finally:
            if attempt.is_accepted:
                self._end_commit(owned.run_id)

    async def ready(self, run_id: str) -> None:
        """Until no transaction of a run is being committed."""
        while (waiting := self._committing.get(run_id)) is not None:
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            waiting.append(future)
            await future

    async def calm(self) -> None:
        """Until no transaction is being committed."""
        while self._committing:
            await self.ready(next(iter(self._committing)))

    def begin_commit(self, run_id: str) -> None:
        """Let all other transactions of a run wait until this one is over."""
        self._committing[run_id] = []

    def _end_commit(self, run_id: str) -> None:
        for future in self._committing.pop(run_id, ()):
            if not future.done():
                future.set_result(None)

    def owns(self, owned: OwnedRun) -> bool:
        """Whether a run is still this worker's, as far as is known."""
        return owned.tenure is self._lease.tenure

    def groups_of(self, owned: OwnedRun, event: Event) -> list[Sequence[Operation]]:
        """The event as a group, after whatever the run did before that is not on disk yet."""
        body = rows.body_of(event.fact)
        append = AppendEvent(owned.namespace, owned.run_id, event.seq, event.kind, event.place, event.at, body)
        earlier = self.committer.waiting_of(owned.run_id) if self.is_alone else []
        if earlier:
            self.committer.join_turn(earlier)
        return [*(group.operations for group in earlier), (append,)]

    async def settled(self, run_id: str) -> None:
        """Until everything that a run did so far is on disk, or void."""
        while self.committer.waiting_of(run_id):
            await self.committer.apply(kind=OwnersGroup)
            if self.committer.waiting_of(run_id):
                # Somebody outside holds its row.
                await pause(self.clock, BUSY_AGAIN_MS)

    async def _transacted(self, owned: OwnedRun, event: Event | None, epoch: int, told: Outcome | Ended) -> Transacted:
        match told:
            case Committed() | Applied():
                assert event is not None
                if self.owns(owned):
                    owned.state = evolve(owned.state, event)
                return Written(event)
            case Undone():
                return told
            case Failed() | Unavailable():
                return Unwritten()
            case Fenced() | Unknown():
                await self.committer.unbusy()
                if self.committer.epoch == epoch:
                    self.committer.stop_for(told)
                return Gone()
            case _:
                return Gone()
