"""Retry and fork: new runs that have the past of others.

In:   a run, and from where to go on.
Out:  another run, inserted and given its past in one transaction; the first one's history stays as it is.

What is kept is decided by the kernel on what was read, and copied inside the database. A history only ever grows, so
that its beginning is the same by then, whoever appends to it meanwhile; that the id is still that of the run is looked
at in the transaction itself.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

from perdure.clock import Clock
from perdure.engine.arrivals import Arrivals
from perdure.engine.background import Background
from perdure.engine.committer import Committer, Dropped, Settlement, Unavailable
from perdure.engine.ports import Announcements, ForkRequest, MergeInput, OwnedRun, StartRequest
from perdure.engine.reads import StoreReader
from perdure.engine.starts import Starts
from perdure.errors import BadForkPoint, IdConflict, NotOpen, RunClosed, RunOpen, StoreError
from perdure.ids import stamp_of
from perdure.kernel.events import CancelRequested, Event, ResultGiven, TimeoutReached
from perdure.kernel.forking import (
    Kept,
    kept_events,
    kept_up_to,
    last_before_end,
    last_of,
    point_before,
    retried,
    waiting_after,
)
from perdure.kernel.status import Status
from perdure.kernel.traits import Traits
from perdure.stores import rows
from perdure.stores.answers import Applied, Missing, Taken
from perdure.stores.operations import AppendEvent, ForkRun
from perdure.stores.port import Store
from perdure.stores.records import RunRow

# So many events are read at once.
PAGE = 1000
RETRY, FORK = "retry", "fork"


class Past(NamedTuple):
    """What a new run has from another one: ranges of events, and results that were given by hand.

    `forked_at` is the number of the last event before anything was left out, `stop` a request to stop among them.
    """

    kept: Sequence[Kept]
    forked_at: int
    last_at: int
    stop: Event | None
    results: Sequence[tuple[str, msgspec.Raw]]


class StoreForker:
    """Makes retries and forks; the Forker of an engine."""

    def __init__(
        self,
        store: Store,
        committer: Committer,
        clock: Clock,
        starts: Starts,
        arrivals: Arrivals,
        reader: StoreReader,
        background: Background,
        announcements: Announcements,
    ) -> None:
        self._store = store
        self._committer = committer
        self._clock = clock
        self._starts = starts
        self._arrivals = arrivals
        self._reader = reader
        self._background = background
        self._announcements = announcements

    # Retry

    async def retry(self, namespace: str, run_id: str, id: str, reason: str | None) -> RunRow | OwnedRun:
        """Run again what failed, or go on where a run was stopped."""
        row = await self._reader.newest(namespace, run_id)
        if row.closed_at is None:
            raise RunOpen(id, row.status)
        if row.status == Status.COMPLETED:
            raise RunClosed(id, row.status, "nothing of it failed; to do a part of it again, fork it: fork(at=...)")
        latest = await self._reader.find(namespace, row.workflow_id)
        if latest.run_id != row.run_id:
            return _retry_of(row, latest)
        history = await self._history(row)
        kept = retried(history, row.undo, stamp_of)
        request = _again(row, row.workflow_id)
        if kept is None:
            # What it had done is undone: it begins anew, with other random numbers and at another time.
            return await self._make(row, msgspec.structs.replace(request, seed=None), RETRY, reason, None)
        return await self._make(row, request, RETRY, reason, _past(history, kept))

    # Fork

    async def fork(
        self, namespace: str, run_id: str, id: str, request: ForkRequest, merge: MergeInput
    ) -> RunRow | OwnedRun:
        """Go on from a point under the same id or another one."""
        row = await self._reader.read(namespace, run_id)
        if row.status == Status.CONTINUED:
            raise _continued(id)
        workflow_id = request.workflow_id or row.workflow_id
        if row.closed_at is None and workflow_id == row.workflow_id:
            raise RunOpen(id, row.status)
        if workflow_id == row.workflow_id:
            latest = await self._reader.find(namespace, workflow_id)
            if latest.run_id != row.run_id:
                raise _taken(row, latest, "a fork")
        history = await self._history(row)
        seq = _point(id, history, request.at)
        _check_results(id, history, seq, request.results)
        past = _past(history, kept_up_to(seq), tuple(request.results.items()))
        again = _again(row, workflow_id)
        if request.input:
            announced = await self._announcements.get(namespace, row.workflow)
            again = msgspec.structs.replace(again, input=merge(row, request.input, announced))
        return await self._make(row, again, FORK, request.reason, past)

    # Both

    async def _history(self, row: RunRow) -> list[Event]:
        found: list[Event] = []
        while len(page := await self._store.reads.events(row, len(found), PAGE)) == PAGE:
            found += page
        return found + page

    async def _make(
        self, row: RunRow, request: StartRequest, kind: str, reason: str | None, past: Past | None
    ) -> RunRow | OwnedRun:
        """Insert the run, and give it its past."""
        if self._background.is_closed:
            raise NotOpen
        now = self._clock.latest()
        owned = self._starts.new_run(row.namespace, request, now)
        fork = ForkRun(
            run_id=owned.run_id,
            namespace=row.namespace,
            from_run_id=row.run_id,
            kind=kind,
            forked_at=1 if past is None else past.forked_at,
            reason=reason,
            initial_attributes=row.initial_attributes,
            begun_at=None if past is None else row.begun_at or row.created_at,
            first_at=None if past is None else row.first_at or row.created_at,
            cancel_requested_at=None if past is None or past.stop is None else past.stop.at,
            cancel_reason=None if past is None or past.stop is None else row.cancel_reason,
            kept=() if past is None else tuple(past.kept),
            given=() if past is None else _given(owned, past, now),
        )
        answer = await self._committer.apply(*self._starts.insert(request, owned, hosted=False), fork)
        if isinstance(answer, Taken) and answer.run.run_id != owned.run_id:
            if kind == RETRY:
                return _retry_of(row, answer.run)
            raise _taken(row, answer.run, "a fork")
        if isinstance(answer, Missing):
            # Unless it is not there at all, it has continued since it was read.
            await self._reader.read(row.namespace, row.run_id)
            raise _continued(row.workflow_id)
        self._check(answer)
        self._arrivals.look_around()
        return owned

    def _check(self, answer: Settlement) -> None:
        match answer:
            case Applied():
                return
            case Dropped():
                # It was closed while the database could not be written.
                raise NotOpen
            case Unavailable(error):
                raise error
            case _:
                raise StoreError(self._store.url, f"the change was refused: {answer}")


def _retry_of(row: RunRow, holder: RunRow) -> RunRow:
    """The run that has the id, if it is the retry of this one: a run has one, however often that is asked for."""
    if holder.forked_from == row.run_id and holder.fork_kind == RETRY:
        return holder
    raise _taken(row, holder, "a retry")


def _continued(id: str) -> RunClosed:
    """What was sent to it under an id has gone on with it, and would be lost in a fork."""
    return RunClosed(id, Status.CONTINUED, "it goes on as another run under its id; fork that one")


def _again(row: RunRow, workflow_id: str) -> StartRequest:
    """The start of a run like this one; not delayed, and no child: its parent was told of the end of this one."""
    is_same_id = workflow_id == row.workflow_id
    return StartRequest(
        row.workflow,
        row.input,
        workflow_id,
        row.queue,
        row.priority,
        traits=Traits(
            entity_id=row.entity_id,
            correlation_id=row.correlation_id,
            attributes=row.attributes,
            timeout_ms=row.timeout_ms,
            continued_from=row.continued_from,
        ),
        seed=row.seed,
        supersedes=row.run_id if is_same_id else None,
    )


def _past(history: Sequence[Event], kept: Sequence[Kept], results: Sequence[tuple[str, msgspec.Raw]] = ()) -> Past:
    """What of a history goes with a new run."""
    events = kept_events(history, kept)
    stop = next((event for event in events if isinstance(event.fact, CancelRequested)), None)
    # The last one before anything was left out.
    forked_at = kept[0].last if kept and kept[0].shift == 0 else 1
    return Past(kept, forked_at, events[-1].at, stop, results)


def _given(owned: OwnedRun, past: Past, now: int) -> tuple[AppendEvent, ...]:
    """The events that say what was given by hand."""
    first, at = last_of(past.kept) + 1, max(now, past.last_at)
    facts = [(place, ResultGiven(value)) for place, value in past.results]
    return tuple(
        AppendEvent(owned.namespace, owned.run_id, seq, type(fact).__name__, place, at, rows.body_of(fact))
        for seq, (place, fact) in enumerate(facts, start=first)
    )


def _point(id: str, history: Sequence[Event], at: int | str) -> int:
    """The number of the last event that a fork keeps."""
    last = last_before_end(history)
    if isinstance(at, int):
        if not 1 <= at <= last:
            raise BadForkPoint(id, f"it has no event {at} that could be kept, only 1 to {last}", _places(history))
        # The new run has a time of its own: that the old one's is over is none of its past until something follows.
        return at - 1 if isinstance(history[at - 1].fact, TimeoutReached) else at
    seq = point_before(history, at)
    if seq is None:
        raise BadForkPoint(id, f"it has no event of a place {at!r}", _places(history))
    return seq


def _check_results(id: str, history: Sequence[Event], seq: int, places: Iterable[str]) -> None:
    """BadForkPoint for the place of a result that no code can wait at after this event, as far as history tells."""
    answered = {event.place for event in history[:seq]} | {""}
    waiting = waiting_after(history, seq)
    for place in places:
        if place in answered:
            raise BadForkPoint(id, f"the call at {place!r} has its result by event {seq}", tuple(waiting))
        # What was never answered has left no trace: after the last event it may be any place.
        if seq < last_before_end(history) and place not in waiting:
            raise BadForkPoint(id, f"after event {seq} no code can wait at {place!r}", tuple(waiting))


def _places(history: Sequence[Event]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(event.place for event in history if event.place))


def _taken(row: RunRow, holder: RunRow, wanted: str) -> IdConflict:
    existing = f"run {holder.run_id} of {holder.workflow} ({holder.status})"
    return IdConflict(holder.workflow_id, existing, f"{wanted} of run {row.run_id}", "that run is newer")
