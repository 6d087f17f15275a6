"""Runs of remote workers: taken with their past, moved by commands that the kernel decides on, and let go of.

In:   claims; commands after the event that a worker knows to be the last.
Out:  runs with their histories in pages; where they stand once it is on disk.
"""

from collections.abc import Sequence
from contextlib import suppress

import msgspec

from perdure.clock import Clock
from perdure.engine.arrivals import Arrivals
from perdure.engine.committer import refusal_of
from perdure.engine.ports import HandBack, Hold, Park, RemoteWorker, Tenure
from perdure.engine.ports.remote_runs import (
    HandBackStep,
    HandedRun,
    HoldStep,
    KeepStep,
    MessageCommand,
    NextStep,
    NoteCommand,
    ParkStep,
    RemoteAdvance,
    RemoteProgress,
)
from perdure.engine.remote.commands import RunCommands
from perdure.engine.remote.sessions import WorkerSession, WorkerSessions, Writing
from perdure.errors import IdConflict, LeaseLost, OutOfStep, RunNotOwned, RunUnreadable
from perdure.kernel.commands import CloseRun
from perdure.kernel.events import RunCancelled, RunTerminated, RunTimedOut
from perdure.kernel.traits import TASK_PREFIX
from perdure.stores.answers import Applied, Moved, Taken
from perdure.stores.operations import ClaimRuns, ForgetDeadline
from perdure.stores.port import Store
from perdure.stores.records import EVENTS_PAGE, UNREAD_PAGE, LoadedRun, RunFilter, RunRow, WorkerRow

CHILDREN_PAGE = 1000
# So many suspects are handed out at once.
SUSPECTS = 1


class StoreRemoteRuns:
    """Runs in a store; the RemoteRuns of an engine."""

    def __init__(self, store: Store, clock: Clock, sessions: WorkerSessions, arrivals: Arrivals) -> None:
        self._store = store
        self._reads = store.reads
        self._clock = clock
        self._sessions = sessions
        self._arrivals = arrivals

    async def claim(self, worker: RemoteWorker, limit: int, holding: Sequence[str] | None) -> list[HandedRun]:
        """Take runs; first those that it has and does not hold, if it says what it holds."""
        session = await self._sessions.find(worker)
        found: list[HandedRun] = []
        if holding is not None:
            held = {*holding}
            lost = [run_id for run_id in await self._reads.owned_runs(worker.worker_id) if run_id not in held]
            found += (await self._load(session, lost))[:limit]
        names = tuple(name for name in session.workflows if not name.startswith(TASK_PREFIX))
        if len(found) < limit and names:
            now, room = self._clock.now(), limit - len(found)
            claim = ClaimRuns(worker.worker_id, worker.namespace, session.queues, names, now, room, SUSPECTS)
            taken = await session.write(claim)
            if not isinstance(taken, Applied):
                raise refusal_of(taken, self._store.url)
            if isinstance(taken.value, list):
                found += await self._load(session, taken.value)
        return found

    async def _load(self, session: WorkerSession, run_ids: Sequence[str]) -> list[HandedRun]:
        loaded = await self._reads.load_runs(run_ids, session.row.worker_id) if run_ids else []
        runs = [each for each in loaded if not isinstance(each, RunUnreadable)]
        secret = await self._reads.channels.secret()
        tenure = Tenure(self._store.url, secret)
        return [await self._handed(each, tenure) for each in runs if not each.row.workflow.startswith(TASK_PREFIX)]

    async def _handed(self, loaded: LoadedRun, tenure: Tenure, after: int = 0) -> HandedRun:
        row = loaded.row
        messages, had = loaded.messages, row.messages
        if messages is None:
            messages, had = await self._reads.unread_page(row.run_id, 0, UNREAD_PAGE)
        events = [event for event in loaded.events if event.seq > after]
        return HandedRun(
            row.run_id,
            row.workflow_id,
            row.workflow,
            row.input,
            row.seed,
            row.created_at,
            loaded.events[-1].seq if loaded.events else 1,
            events[:EVENTS_PAGE],
            messages,
            had,
            await self._children(row) if loaded.children else {},
            tenure.key_of(row.run_id).hex(),
            len(events) > EVENTS_PAGE,
        )

    async def _children(self, row: RunRow) -> dict[str, str]:
        """The runs that a run has started, by their places; none is to be started twice."""
        found: dict[str, str] = {}
        wanted = RunFilter(row.namespace, parent_id=row.run_id, limit=CHILDREN_PAGE)
        while page := await self._reads.list_runs(wanted):
            for child in page:
                if not isinstance(child, RunUnreadable) and child.parent_place is not None:
                    # Of those that continue one another, the first.
                    found[child.parent_place] = child.run_id
            wanted = msgspec.structs.replace(wanted, before=page[-1].run_id)
        return found

    async def read(self, worker: RemoteWorker, run_id: str, after: int) -> HandedRun:
        """A run that it has, with its events after a number."""
        await self._sessions.find(worker)
        for loaded in await self._reads.load_runs([run_id], worker.worker_id):
            if not isinstance(loaded, RunUnreadable):
                secret = await self._reads.channels.secret()
                return await self._handed(loaded, Tenure(self._store.url, secret), after)
        raise RunNotOwned(run_id, worker.worker_id)

    async def advance(self, worker: RemoteWorker, asked: RemoteAdvance) -> RemoteProgress:
        """Do what a worker wants of one of its runs: the commands all or nothing, then what becomes of it."""
        session = await self._sessions.find(worker)
        row = await self._reads.run(worker.namespace, asked.run_id)
        if row is None or row.owner != worker.worker_id or row.workflow.startswith(TASK_PREFIX):
            raise RunNotOwned(asked.run_id, worker.worker_id)
        writing = session.begin(row, await self._reads.last_event(row.run_id))
        if writing.owned.state.seq != asked.after_seq:
            raise OutOfStep(row.run_id, asked.after_seq, writing.owned.state.seq)
        unread = []
        if any(isinstance(each, MessageCommand | NoteCommand) for each in asked.commands):
            unread = await self._reads.unread(row.run_id)
        commands = RunCommands(writing, row, {each.number: each for each in unread}, self._clock.now())
        for command in asked.commands:
            commands.carry_out(command)
        if asked.commands:
            await self._write(writing, row, commands)
        if commands.has_ended:
            return RemoteProgress(commands.seq, is_kept=False)
        return await self._then(session, row, commands.seq, writing, asked.then)

    async def end(self, worker: WorkerRow, run_id: str, end: RunTerminated | RunCancelled | RunTimedOut) -> None:
        """End a run or a task of a worker in its name; one that it has not any more is left alone."""
        row = await self._reads.run(worker.namespace, run_id)
        if row is None or row.owner != worker.worker_id:
            return
        writing = WorkerSession(worker, self._sessions, is_alive=False).begin(row, await self._reads.last_event(run_id))
        writing.owner.advance(writing.owned, CloseRun(end))
        writing.add(ForgetDeadline(run_id))
        # Refused when its worker was quicker, or has lost its lease: the next look finds what is left to do.
        with suppress(LeaseLost):
            if isinstance(await writing.write(), Applied) and row.parent_id is not None:
                await self._arrivals.read_if_here(row.parent_id)

    async def _write(self, writing: Writing, row: RunRow, commands: RunCommands) -> None:
        answer = await writing.write()
        if isinstance(answer, Taken):
            other = answer.run
            raise IdConflict(other.workflow_id, f"{other.workflow} ({other.status})", "a child", "the id is taken")
        if isinstance(answer, Moved):
            last = await self._reads.last_event(row.run_id)
            raise OutOfStep(row.run_id, writing.first_seq, 1 if last is None else last[0])
        if not isinstance(answer, Applied):
            raise refusal_of(answer, self._store.url)
        if commands.has_ended and row.parent_id is not None:
            await self._arrivals.read_if_here(row.parent_id)
        if commands.has_started or commands.has_ended:
            self._arrivals.look_around()

    async def _then(
        self, session: WorkerSession, row: RunRow, seq: int, writing: Writing, then: NextStep
    ) -> RemoteProgress:
        """Let go of the run, or keep it; it is kept when a message came first."""
        if isinstance(then, KeepStep):
            return await self._kept(row, seq)
        letting_go = session.begin(row, (seq, writing.owned.state.at))
        match then:
            case ParkStep(had, wake_at, waiting):
                letting_go.owned.messages = had
                how: Park | HandBack | Hold = Park(wake_at, msgspec.json.format(bytes(waiting), indent=0).decode())
            case HandBackStep():
                how = HandBack()
            case HoldStep(reason, report):
                how = Hold(reason, report)
        letting_go.owner.release(letting_go.owned, how, lambda _: None)
        answer = await letting_go.write()
        if isinstance(answer, Moved):
            return await self._kept(row, seq)
        if not isinstance(answer, Applied):
            raise refusal_of(answer, self._store.url)
        self._arrivals.look_around()
        return RemoteProgress(seq, is_kept=False)

    async def _kept(self, row: RunRow, seq: int) -> RemoteProgress:
        messages, had = await self._reads.unread_page(row.run_id, 0, UNREAD_PAGE)
        return RemoteProgress(seq, is_kept=True, messages=messages, had=had)
