"""Tasks of remote workers: activities on queues that are tried, fail and end by the rules of the kernel.

In:   claims; how attempts ended, as their workers say; deadlines that have passed.
Out:  attempts to make; the task's outcome and end, or its next attempt, in one transaction under its worker's epoch.

A task is a child run of one step. Whatever an embedded worker would write of it is written here in a remote one's name,
so either may go on where the other left off.
"""

import asyncio
import logging
import math
from collections.abc import Sequence

import msgspec

from perdure.clock import Clock
from perdure.engine.arrivals import Arrivals
from perdure.engine.committer import Settlement, refusal_of
from perdure.engine.ports import Park, PublishedValue, RemoteTask, RemoteWorker
from perdure.engine.remote.sessions import WorkerSession, WorkerSessions, Writing
from perdure.engine.remote.task_inputs import task_input
from perdure.errors import AttemptLost, BadInput, LeaseLost, RunNotFound, RunNotOwned, RunUnreadable
from perdure.kernel.commands import CloseRun, RecordOutcome
from perdure.kernel.events import (
    ActivityCompleted,
    ActivityFailed,
    Closing,
    Event,
    RunCancelled,
    RunCompleted,
    RunFailed,
    RunTerminated,
)
from perdure.kernel.failure import Failure
from perdure.kernel.messages import CancelRequest, Message, TerminateRequest
from perdure.kernel.retry import is_retryable, next_attempt_at
from perdure.kernel.status import Status
from perdure.kernel.tasks import too_late
from perdure.kernel.traits import TASK_PREFIX
from perdure.stores.answers import Applied, Moved
from perdure.stores.operations import (
    BeginAttempt,
    ClaimRuns,
    ExpectDeadline,
    ForgetDeadline,
    NoteDeadline,
    PublishValues,
    RecordAttempt,
    RecordBeat,
)
from perdure.stores.port import Store
from perdure.stores.records import DeadlineRow, LoadedRun, RunRow

log = logging.getLogger("perdure.engine")

NO_VALUE = msgspec.Raw(b"null")
# A task that moved since it was read is looked at again, so many times.
MOST_TIMES = 5
# So many attempts whose time is over are ended in one look.
BITE = 100
# So many suspects are handed out at once.
SUSPECTS = 1


class TaskRun:
    """A task, as its row and its input tell."""

    def __init__(self, row: RunRow, url: str) -> None:
        self.row = row
        self.activity = self.place = row.workflow.removeprefix(TASK_PREFIX)
        try:
            self.input = task_input("its input", row.input)
        except BadInput as error:
            raise RunUnreadable(url, row.run_id, row.workflow_id, str(error)) from None

    def deadline(self, worker_id: str, attempt: int, begun_at: int, beat_at: int) -> NoteDeadline:
        """When an attempt is over that has shown life at a time."""
        ends_at = begun_at + math.ceil(self.input.timeout * 1000)
        heartbeat = self.input.heartbeat
        silent_ms = None if heartbeat is None else math.ceil(heartbeat * 1000)
        due_at = ends_at if silent_ms is None else min(ends_at, beat_at + silent_ms)
        row = self.row
        return NoteDeadline(row.run_id, row.namespace, worker_id, attempt, begun_at, ends_at, silent_ms, due_at)


def stop_in(messages: Sequence[Message]) -> RunCancelled | RunTerminated | None:
    """How a task ends that was asked to stop."""
    for message in messages:
        if isinstance(message.body, TerminateRequest):
            return RunTerminated(message.body.reason)
    for message in messages:
        if isinstance(message.body, CancelRequest):
            return RunCancelled(message.body.reason)
    return None


class StoreRemoteTasks:
    """Tasks in a store; the RemoteTasks of an engine."""

    def __init__(self, store: Store, clock: Clock, sessions: WorkerSessions, arrivals: Arrivals) -> None:
        self._reads = store.reads
        self._url = store.url
        self._clock = clock
        self._sessions = sessions
        self._arrivals = arrivals

    # Taking

    async def claim(self, worker: RemoteWorker, limit: int, holding: Sequence[str] | None) -> list[RemoteTask]:
        """Take tasks; first those that it has and does not hold, if it says what it holds."""
        session = await self._sessions.find(worker)
        found: list[RemoteTask] = []
        if holding is not None:
            held, owned = {*holding}, await self._reads.remote.owned(worker.worker_id)
            lost = [run_id for run_id, name in owned.items() if name.startswith(TASK_PREFIX) and run_id not in held]
            found += await self._begin(session, lost[:limit])
        names = tuple(name for name in session.workflows if name.startswith(TASK_PREFIX))
        if len(found) < limit and names:
            now, room = self._clock.now(), limit - len(found)
            claim = ClaimRuns(worker.worker_id, worker.namespace, session.queues, names, now, room, SUSPECTS)
            taken = await session.write(claim)
            if not isinstance(taken, Applied):
                raise refusal_of(taken, self._url)
            if isinstance(taken.value, list):
                found += await self._begin(session, taken.value)
        return found

    async def _begin(self, session: WorkerSession, run_ids: list[str]) -> list[RemoteTask]:
        """The attempts to be made of these tasks; a task that needs none any more is ended."""
        if not run_ids:
            return []
        loaded = await self._reads.load_runs(run_ids, session.row.worker_id)
        begun = await asyncio.gather(*(self._begin_or_hold(session, each) for each in loaded))
        return [task for task in begun if task is not None]

    async def _begin_or_hold(self, session: WorkerSession, loaded: LoadedRun | RunUnreadable) -> RemoteTask | None:
        try:
            if isinstance(loaded, RunUnreadable):
                raise loaded
            return await self._begin_one(session, loaded)
        except RunUnreadable as error:
            await session.hold(error)
            return None

    async def _begin_one(self, session: WorkerSession, loaded: LoadedRun) -> RemoteTask | None:
        task, now = TaskRun(loaded.row, self._url), self._clock.now()
        last = (loaded.events[-1].seq, loaded.events[-1].at) if loaded.events else None
        writing = session.begin(task.row, last)
        attempt = 1 + sum(each.place == task.place for each in loaded.attempts)
        known = next((each for each in loaded.progress if each.place == task.place), None)
        end = await self._end_before(task, loaded)
        if end is None and task.input.at_most_once and known is not None and known.begun_at is not None:
            error = AttemptLost(task.activity, task.place)
            arguments = msgspec.Raw(msgspec.json.encode(error.args))
            failure = Failure(f"{AttemptLost.__module__}.{AttemptLost.__qualname__}", str(error), arguments)
            _record_failure(writing, task, failure, known.begun_at, attempt)
        elif end is None:
            deadline = task.deadline(session.row.worker_id, attempt, now, now)
            writing.add(deadline)
            if task.input.at_most_once:
                writing.add(BeginAttempt(task.row.namespace, task.row.run_id, task.place, now))
            if isinstance(await writing.write(), Applied):
                return _handed(task, attempt, None if known is None else known.details)
            return None
        else:
            writing.owner.advance(writing.owned, CloseRun(end))
        await self._written(writing, task)
        return None

    async def _end_before(self, task: TaskRun, loaded: LoadedRun) -> Closing | None:
        """How a task ends of which no attempt is to be made; None when one is."""
        for event in loaded.events:
            if isinstance(event.fact, ActivityCompleted):
                return RunCompleted(event.fact.result)
            if isinstance(event.fact, ActivityFailed):
                return RunFailed(event.fact.failure)
        unread = loaded.messages if loaded.messages is not None else await self._reads.unread(task.row.run_id)
        if (stop := stop_in(unread)) is not None:
            return stop
        given = task.input
        if given.begin_by is not None and self._clock.now() > given.begin_by:
            text = too_late(task.activity, task.row.queue, given.queue_timeout or 0)
            return RunFailed(Failure("builtins.TimeoutError", text))
        if given.transaction:
            text = f"activity {task.activity!r} wants a transaction, which no worker over a server can give"
            return RunFailed(Failure("perdure.errors.BadOption", f"{text}; give it a queue of its own"))
        return None

    # Ending

    async def complete(self, worker: RemoteWorker, task_id: str, attempt: int, result: msgspec.Raw) -> None:
        """Record what the attempt returned, and end the task; said twice, it counts once."""
        session = await self._sessions.find(worker)
        for _ in range(MOST_TIMES):
            row = await self._row(worker, task_id)
            if row.closed_at is not None and await self._is_said(row, attempt, RunCompleted(result)):
                return
            task, deadline, writing = await self._attempt(session, row, attempt)
            outcome = ActivityCompleted(task.activity, task.input.arguments, result, deadline.begun_at, attempt)
            writing.owner.advance(writing.owned, RecordOutcome(task.place, outcome))
            writing.owner.advance(writing.owned, CloseRun(RunCompleted(result)))
            if await self._written(writing, task):
                return
        raise RunNotOwned(task_id, worker.worker_id)

    async def fail(
        self, worker: RemoteWorker, task_id: str, attempt: int, failure: Failure, *, may_retry: bool = True
    ) -> None:
        """Try again when that is due, or end the task, as its caller said; said twice, it counts once."""
        session = await self._sessions.find(worker)
        for _ in range(MOST_TIMES):
            row = await self._row(worker, task_id)
            if await self._has_failed(row, attempt, failure):
                return
            task, deadline, writing = await self._attempt(session, row, attempt)
            if await self._fail(writing, task, deadline, failure, may_retry=may_retry):
                return
        raise RunNotOwned(task_id, worker.worker_id)

    async def _fail(
        self, writing: Writing, task: TaskRun, deadline: DeadlineRow, failure: Failure, *, may_retry: bool
    ) -> bool:
        """Write that an attempt has failed, and what follows."""
        retry, now, attempt = task.input.retry, self._clock.latest(), deadline.attempt
        stop = stop_in(await self._reads.unread(task.row.run_id))
        is_worth_it = may_retry and not task.input.at_most_once and is_retryable(retry, Exception(), failure)
        next_at = next_attempt_at(retry, attempt, now) if is_worth_it else None
        if stop is not None:
            writing.owner.advance(writing.owned, CloseRun(stop))
        elif next_at is None:
            _record_failure(writing, task, failure, deadline.begun_at, attempt)
        else:
            row, text = task.row, msgspec.json.encode(failure).decode()
            writing.add(
                RecordAttempt(row.namespace, row.run_id, task.place, attempt, task.activity, text, now, next_at)
            )
            shown = {"kind": "activity", "place": task.place, "name": task.activity, "failed_attempts": attempt}
            waiting = msgspec.json.encode([{**shown, "until": next_at}]).decode()
            # Refused when somebody has asked it to stop since that was looked for.
            writing.owner.release(writing.owned, Park(next_at, waiting), lambda _: None)
        return await self._written(writing, task)

    # Going on

    async def heartbeat(
        self,
        worker: RemoteWorker,
        task_id: str,
        attempt: int,
        details: msgspec.Raw | None,
        published: Sequence[PublishedValue],
    ) -> bool:
        """Note that the attempt goes on; answers whether nobody waits for it any more."""
        session = await self._sessions.find(worker)
        task, deadline, writing = await self._attempt(session, await self._row(worker, task_id), attempt)
        stop = stop_in(await self._reads.unread(task_id))
        if isinstance(stop, RunTerminated):
            writing.owner.advance(writing.owned, CloseRun(stop))
            await self._written(writing, task)
            return True
        now, row = self._clock.now(), task.row
        writing.add(task.deadline(worker.worker_id, attempt, deadline.begun_at, now))
        if details is not None:
            writing.add(RecordBeat(row.namespace, row.run_id, task.place, bytes(details).decode(), now))
        for each in published if row.parent_id is not None else ():
            body = (bytes(each.value).decode(),)
            of_task = (row.run_id, task.place, attempt, now)
            writing.add(PublishValues(str(row.parent_id), row.namespace, each.stream, *of_task, body))
        if not isinstance(answer := await writing.write(), Applied):
            if isinstance(answer, Moved):
                raise RunNotOwned(task_id, worker.worker_id)
            raise refusal_of(answer, self._url)
        return stop is not None

    async def end_overdue(self, now: int) -> int | None:
        """End attempts whose time is over as failed, in their workers' names; answers when to look again."""
        for deadline in await self._reads.remote.due(now, BITE):
            await self._end_or_forget(deadline)
        return await self._reads.remote.next_due()

    async def _end_or_forget(self, deadline: DeadlineRow) -> None:
        """End one; those behind it do not wait for one that cannot be read, or that its worker lost just now."""
        try:
            await self._end_overdue(deadline)
        except LeaseLost:
            return
        except RunUnreadable as error:
            log.error("an attempt whose time is over is left alone: %s", error, extra={"event": "run_unreadable"})  # noqa: TRY400 - its words say it all
            await self._forget(deadline)

    async def _forget(self, deadline: DeadlineRow) -> None:
        """Look at one no more, unless it is another one by now."""
        expected = ExpectDeadline(deadline.run_id, deadline.worker_id, deadline.attempt, deadline.due_at)
        await self._sessions.committer.apply(expected, ForgetDeadline(deadline.run_id))

    async def _end_overdue(self, deadline: DeadlineRow) -> None:
        row = await self._reads.run(deadline.namespace, deadline.run_id)
        holder = await self._reads.remote.worker(deadline.worker_id)
        if row is None or row.owner != deadline.worker_id or holder is None:
            # Its worker has lost it, which has ended the attempt.
            await self._forget(deadline)
            return
        session, task = WorkerSession(holder, self._sessions), TaskRun(row, self._url)
        writing = session.begin(row, await self._reads.last_event(row.run_id))
        # It may have shown life since, or another attempt be under way.
        expected = ExpectDeadline(row.run_id, deadline.worker_id, deadline.attempt, deadline.due_at)
        writing.add(expected)
        is_silent = deadline.due_at < deadline.ends_at
        if is_silent:
            text = f"was silent for longer than its heartbeat of {task.input.heartbeat:g} s"
        else:
            text = f"took longer than its timeout of {task.input.timeout:g} s"
        failure = Failure("builtins.TimeoutError", f"activity {task.activity!r} {text}")
        await self._fail(writing, task, deadline, failure, may_retry=True)

    # What all of them do

    async def _row(self, worker: RemoteWorker, task_id: str) -> RunRow:
        row = await self._reads.run(worker.namespace, task_id)
        if row is None or not _is_task(row):
            raise RunNotFound(task_id, worker.namespace)
        return row

    async def _attempt(self, session: WorkerSession, row: RunRow, attempt: int) -> tuple[TaskRun, DeadlineRow, Writing]:
        """The attempt that a worker means; RunNotOwned when it is not its own, or another one is under way."""
        deadline = await self._reads.remote.deadline(row.run_id)
        worker_id = session.row.worker_id
        is_own = row.owner == worker_id and deadline is not None and deadline.worker_id == worker_id
        if deadline is None or not is_own or deadline.attempt != attempt:
            raise RunNotOwned(row.run_id, worker_id)
        task, writing = TaskRun(row, self._url), session.begin(row, await self._reads.last_event(row.run_id))
        writing.add(ExpectDeadline(row.run_id, worker_id, attempt, None))
        return task, deadline, writing

    async def _written(self, writing: Writing, task: TaskRun) -> bool:
        """Write what ends an attempt; False when the task is not what it was."""
        writing.add(ForgetDeadline(task.row.run_id))
        answer: Settlement = await writing.write()
        if isinstance(answer, Moved):
            return False
        if not isinstance(answer, Applied):
            raise refusal_of(answer, self._url)
        if task.row.parent_id is not None:
            await self._arrivals.read_if_here(task.row.parent_id)
        return True

    async def _is_said(self, row: RunRow, attempt: int, end: RunCompleted) -> bool:
        """Whether a closed task ended with this very answer."""
        events = await self._reads.events(row, 0, 10)
        recorded = [each for each in events if isinstance(each.fact, ActivityCompleted)]
        return (
            row.status == Status.COMPLETED
            and row.outcome == bytes(end.result).decode()
            and any(_attempts(each) == attempt for each in recorded)
        )

    async def _has_failed(self, row: RunRow, attempt: int, failure: Failure) -> bool:
        """Whether this very failure is on disk already."""
        place = row.workflow.removeprefix(TASK_PREFIX)
        said = [each for each in await self._reads.attempts(row.run_id) if each.place == place]
        if any(each.attempt == attempt and _alike(each.failure, failure) for each in said):
            return True
        if row.closed_at is None or row.status not in {Status.FAILED, Status.CANCELLED}:
            return False
        if row.status == Status.CANCELLED:
            return attempt == len(said) + 1
        events = await self._reads.events(row, 0, 10)
        return any(
            isinstance(each.fact, ActivityFailed)
            and each.fact.attempts == attempt
            and _alike(each.fact.failure, failure)
            for each in events
        )


def _attempts(event: Event) -> int:
    return event.fact.attempts if isinstance(event.fact, ActivityCompleted) else 0


def _alike(one: Failure, other: Failure) -> bool:
    return (one.type, one.message) == (other.type, other.message)


def _is_task(row: RunRow) -> bool:
    return row.workflow.startswith(TASK_PREFIX)


def _record_failure(writing: Writing, task: TaskRun, failure: Failure, begun_at: int, attempt: int) -> None:
    failed = ActivityFailed(task.activity, task.input.arguments, failure, begun_at, attempt)
    writing.owner.advance(writing.owned, RecordOutcome(task.place, failed))
    writing.owner.advance(writing.owned, CloseRun(RunFailed(failure)))


def _handed(task: TaskRun, attempt: int, details: str | None) -> RemoteTask:
    given = task.input
    return RemoteTask(
        task.row.run_id,
        task.activity,
        given.arguments,
        attempt,
        given.max_attempts,
        given.timeout,
        given.heartbeat,
        NO_VALUE if details is None else msgspec.Raw(details.encode()),
        f"{task.row.run_id}/{task.place}",
        task.row.parent_id,
    )
