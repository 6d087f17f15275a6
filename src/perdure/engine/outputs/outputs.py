"""Outputs: what runs show of themselves and what they publish.

In:   snapshots and values of owned runs; the numbers that readers of streams have come to.
Out:  groups for the committer; what is on disk, for everybody.
"""

from collections.abc import Iterator, Sequence
from functools import partial

from perdure.clock import Clock
from perdure.engine.background import Background
from perdure.engine.committer import Committer, OwnersGroup, Settlement
from perdure.engine.leasing.lease import Lease
from perdure.engine.outputs.followers import Followers, look_at_histories, look_at_streams
from perdure.engine.ports import OwnedRun, Published
from perdure.engine.reads import StoreReader
from perdure.kernel.status import Status
from perdure.stores.answers import Broken
from perdure.stores.operations import PublishValues, WriteSnapshot
from perdure.stores.port import Store
from perdure.stores.records import RunRow, SnapshotRow, StreamHead, StreamValue

# So many values are written as one change, if they are small.
MOST_VALUES, MOST_CHARACTERS = 2000, 1_000_000


class StoreOutputs:
    """What runs show and publish, kept in a store; the Outputs of an engine."""

    def __init__(
        self,
        store: Store,
        committer: Committer,
        clock: Clock,
        lease: Lease,
        reader: StoreReader,
        background: Background,
    ) -> None:
        self._channels = store.reads.channels
        self._committer = committer
        self._clock = clock
        self._lease = lease
        self._reader = reader
        self.followers = Followers(look_at_streams(store), clock, background)
        self.history_followers = Followers(look_at_histories(store), clock, background)

    # Of owned runs

    def show(self, owned: OwnedRun, seq: int, body: str) -> None:
        """Show this of an owned run, as of an event that is written before."""
        if owned.tenure is self._lease.tenure:
            at = self._clock.now()
            snapshot = WriteSnapshot(owned.run_id, self._lease.worker_id, owned.namespace, seq, at, body)
            self._committer.submit(OwnersGroup((snapshot,), lambda _: None))

    def publish(self, owned: OwnedRun, published: Sequence[Published]) -> None:
        """Write values that an owned run has published, in their order."""
        now = self._clock.now()
        for each in published:
            for bodies in pieces_of(each.bodies):
                operation = _operation(owned, each, bodies, now)
                told = partial(self._published, owned, each, len(bodies))
                if owned.tenure is self._lease.tenure:
                    self._committer.submit(OwnersGroup((operation,), told))
                else:
                    each.settled(len(bodies))

    def _published(self, owned: OwnedRun, each: Published, count: int, answer: Settlement) -> None:
        if isinstance(answer, Broken) and self._lease.host is not None:
            self._lease.host.broken(owned.run_id, answer.trouble)
        each.settled(count)
        if each.run_id in self.followers.by_run:
            self.followers.look_at_once(each.run_id)

    # For everybody

    async def snapshot(self, namespace: str, run_id: str) -> SnapshotRow | None:
        """What a run shows, or the one that continues it; while that shows nothing yet, the one before it."""
        row = await self._reader.read(namespace, run_id)
        found = await self._channels.snapshot(run_id)
        while row.status == Status.CONTINUED:
            row = await self._reader.read(namespace, str(self._reader.ending_of(row).next_run_id))
            found = await self._channels.snapshot(row.run_id) or found
        return found

    async def stream_page(self, run_id: str, name: str, after: int, limit: int) -> Sequence[StreamValue]:
        """The first values of a run's stream after a number."""
        return await self._channels.stream_page(run_id, name, after, limit)

    async def holder(self, namespace: str, run_id: str, name: str, after: int) -> RunRow:
        """The run in which the values of a stream after a number begin: this one, or one that it continues."""
        row = await self._reader.read(namespace, run_id)
        while row.continued_from is not None and await self._channels.stream_begin(row.run_id, name) > after:
            row = await self._reader.read(namespace, row.continued_from)
        return row

    async def heads(self, run_id: str) -> Sequence[StreamHead]:
        """How far the streams of a run are."""
        found = await self._channels.heads([run_id])
        return [head for head in found.get(run_id, ()) if not head.source]

    async def wait_for_more(self, run_id: str, name: str, after: int) -> None:
        """Until a run's stream has more than this number, or the run has ended, or may have."""
        await self.followers.wait(run_id, name, after)

    async def wait_for_event(self, run_id: str, after: int) -> None:
        """Until a run has more events than this number, or has ended, or may have."""
        await self.history_followers.wait(run_id, "", after)

    def close(self) -> None:
        """Tell everybody that nothing is waited for any more."""
        self.followers.close()
        self.history_followers.close()


def _operation(owned: OwnedRun, each: Published, bodies: tuple[str, ...], now: int) -> PublishValues:
    at = now if each.at is None else each.at
    return PublishValues(each.run_id, owned.namespace, each.name, owned.run_id, each.source, each.attempt, at, bodies)


def pieces_of(bodies: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Values in their order, in pieces that a database takes in one change without keeping others waiting for long."""
    first = size = 0
    for place, body in enumerate(bodies):
        if place > first and (place - first >= MOST_VALUES or size + len(body) > MOST_CHARACTERS):
            yield bodies[first:place]
            first, size = place, 0
        size += len(body)
    yield bodies[first:]
