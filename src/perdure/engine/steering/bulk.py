"""Bulk: the same asked of all runs that match a filter, a bite at a time.

In:   an action and a filter.
Out:  what became of the runs: done, skipped, refused; after each bite, and in the end.

Which runs are meant is read at the beginning, so that each is asked once and none that is started meanwhile. Those of
a bite are read again, asked together and go into one transaction, or a few. Each write holds only if
its run still is what was read; else it is read again, and left alone when it does not match any more. So a caller
who is killed leaves whole writes behind, and the same call again does the rest.
"""

import asyncio
from collections.abc import Callable, Sequence

import msgspec

from perdure.clock import Clock
from perdure.engine.committer import Committer, Settlement, refusal_of
from perdure.engine.ports import Broadcast, BulkAction, Failures, Tally, Verb
from perdure.engine.reads import StoreReader
from perdure.engine.steering.forking import StoreForker
from perdure.engine.steering.pace import Pace
from perdure.engine.stopping import Stopping
from perdure.errors import (
    IdConflict,
    InboxFull,
    NotOpen,
    PerdureError,
    RunClosed,
    RunNotFound,
    RunOpen,
    RunUnreadable,
    StoreUnavailable,
)
from perdure.kernel.filters import Filter, matches
from perdure.stores import rows
from perdure.stores.answers import Applied, Closed, Full, Missing, Moved, Posted
from perdure.stores.operations import ExpectRun, Operation, PostDelayed, PostMessage
from perdure.stores.port import StoreChanges
from perdure.stores.records import RunFilter, RunQuery, RunRow
from perdure.stores.rules.filters import run_fields

# A run that changes whenever it is looked at is asked without a condition in the end.
TRIES = 5
# So many ids of runs with an error are told.
FEW_IDS = 10
# These runs are not what is meant any more.
SKIPPED = (RunClosed, RunOpen, RunNotFound, IdConflict)


class StoreBulk:
    """Asks many runs at once; the BulkActions of an engine."""

    def __init__(
        self,
        committer: Committer,
        clock: Clock,
        reader: StoreReader,
        stopping: Stopping,
        forker: StoreForker,
        changes: StoreChanges,
        url: str,
        max_unread: int,
    ) -> None:
        self._committer = committer
        self._changes = changes
        self._clock = clock
        self._reader = reader
        self._stopping = stopping
        self._forker = forker
        self._url = url
        self._max_unread = max_unread

    async def act(self, namespace: str, action: BulkAction, where: Filter, told: Callable[[Tally], None]) -> Tally:
        """Do this to the runs that match and are on disk now."""
        meant = await self._meant(namespace, where)
        tally = Tally(matched=len(meant))
        clock, pace = asyncio.get_running_loop().time, Pace()
        first, mark = 0, await self._changes.mark()
        while bite := meant[first : first + pace.size]:
            first += len(bite)
            began = clock()
            found = await self._reader.matching.among(RunQuery(namespace, where, None, len(bite)), bite)
            pace.note(others_wrote=await self._changes.mark() != mark)
            answers = await asyncio.gather(*(self._ask(row, action, where) for row in found))
            mark = await self._changes.mark()
            tally = _added(tally, len(bite), found, answers)
            told(tally)
            await asyncio.sleep(pace.rest_after(clock() - began))
        return tally

    async def _meant(self, namespace: str, where: Filter) -> list[object]:
        """The runs that match now, newest first; what is started from here on is not among them."""
        newest = await self._reader.list_runs(RunFilter(namespace, limit=1))
        if not newest:
            return []
        # Its own id is still below this one.
        return await self._reader.matching.keys(RunQuery(namespace, where, f"{newest[0].run_id} "))

    async def _ask(self, row: RunRow | RunUnreadable, action: BulkAction, where: Filter) -> bool | PerdureError:
        """Whether it was done; False when it was skipped, or else the error."""
        if isinstance(row, RunUnreadable):
            return row
        try:
            return await self._done(row, action, where)
        except SKIPPED:
            return False
        except (StoreUnavailable, NotOpen):
            # It is not about this run.
            raise
        except PerdureError as error:
            return error
        except rows.Garbled as error:
            return RunUnreadable(self._url, row.run_id, row.workflow_id, str(error))

    async def _done(self, row: RunRow, action: BulkAction, where: Filter) -> bool:
        for attempt in range(TRIES):
            guard = [_as_read(row)] if attempt < TRIES - 1 else []
            answer = await self._answer(row, action, guard)
            if not isinstance(answer, Moved):
                return answer if isinstance(answer, bool) else self._is_done(row, answer)
            if attempt == TRIES - 1:
                break
            row = await self._reader.read(row.namespace, row.run_id)
            if not matches(where, run_fields(row)):
                break
        return False

    async def _answer(self, row: RunRow, action: BulkAction, guard: Sequence[Operation]) -> Settlement | bool:
        if isinstance(action, Broadcast):
            return await self._send(row, action, guard)
        match action.verb:
            case Verb.CANCEL:
                stopped = await self._stopping.cancel(row, action.reason, None, guard, action.message_id)
                return _is_news(stopped)
            case Verb.TERMINATE:
                return _is_news(await self._stopping.terminate(row, action.reason, guard, action.message_id))
            case Verb.PAUSE:
                return await self._stopping.pause(row, action.reason, guard)
            case Verb.RESUME:
                return await self._stopping.resume(row, guard)
            case Verb.RETRY:
                again = await self._forker.retry(row.namespace, row.run_id, row.workflow_id, action.reason)
                # One that was there before is the work of another call.
                return not isinstance(again, RunRow)

    async def _send(self, row: RunRow, action: Broadcast, guard: Sequence[Operation]) -> Settlement | bool:
        sent, now = action.sent, self._clock.now()
        if action.delay_ms:
            sent = msgspec.structs.replace(sent, due_at=self._clock.latest() + action.delay_ms)
        given = (row.run_id, action.message_id, type(sent).__name__, rows.message_body(sent), now, self._max_unread)
        post = PostMessage(*given) if sent.due_at is None else PostDelayed(*given, sent.due_at)
        answer = await self._committer.apply(*guard, post)
        if isinstance(answer, Applied) and isinstance(answer.value, Posted):
            self._stopping.notice(answer, row.run_id, action.message_id, sent, now)
        return _is_news(answer)

    def _is_done(self, row: RunRow, answer: Settlement) -> bool:
        match answer:
            case Applied():
                return True
            case Closed() | Missing():
                return False
            case Full(most):
                raise InboxFull(row.workflow_id, most)
            case _:
                raise refusal_of(answer, self._url)


def _is_news(answer: Settlement | None) -> Settlement | bool:
    """The answer to a message, False when it was there before; None says that it was done without one."""
    if isinstance(answer, Applied) and isinstance(answer.value, Posted):
        return answer.value.count is not None
    return True if answer is None else answer


def _as_read(row: RunRow) -> ExpectRun:
    """All of a run that filters see and that changes."""
    return ExpectRun(row.run_id, row.status, row.held, row.step, row.attributes, row.updated_at)


def _added(
    tally: Tally, asked: int, found: Sequence[RunRow | RunUnreadable], answers: Sequence[bool | PerdureError]
) -> Tally:
    """The tally with a bite more; what was not found does not match any more."""
    errors = dict(tally.errors)
    for row, answer in zip(found, answers, strict=True):
        if isinstance(answer, PerdureError):
            before = errors.get(type(answer).__name__, Failures(0, ()))
            id = row.id if isinstance(row, RunUnreadable) else row.workflow_id
            errors[type(answer).__name__] = Failures(before.count + 1, (*before.ids, id)[:FEW_IDS])
    return msgspec.structs.replace(
        tally,
        done=tally.done + sum(answer is True for answer in answers),
        skipped=tally.skipped + asked - len(found) + sum(answer is False for answer in answers),
        errors=errors,
    )
