"""Runs of remote workers: taken with their past, moved by commands that the kernel decides on, and let go of.

In:   claims; commands after the event that a worker knows to be the last.
Out:  runs with their histories in pages; where they stand once it is on disk.
"""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress

import msgspec

from perdure.clock import Clock
from perdure.engine.arrivals import Arrivals
from perdure.engine.committer import Settlement, refusal_of
from perdure.engine.leasing.claims import has_begun_before
from perdure.engine.ports import HandBack, Hold, Park, Pause, RemoteWorker, Tenure
from perdure.engine.ports.remote_runs import (
    ClaimWish,
    FailedTry,
    HandBackStep,
    HandedRun,
    HoldStep,
    KeepStep,
    NextStep,
    OwnedDetail,
    ParkStep,
    PauseStep,
    RemoteAdvance,
    RemoteProgress,
    WorkerNews,
    error_value,
)
from perdure.engine.remote.commands import (
    RunCommands,
    check_entities,
    check_superseded,
    child_places,
    counts_published,
    superseded_by,
    takes_messages,
)
from perdure.engine.remote.sessions import WorkerSession, WorkerSessions, Writing
from perdure.engine.remote.shown import check_report, check_waiting
from perdure.errors import BadField, IdConflict, LeaseLost, OutOfStep, PerdureError, RunNotOwned, RunUnreadable
from perdure.kernel.commands import CloseRun
from perdure.kernel.events import RunCancelled, RunTerminated, RunTimedOut
from perdure.kernel.traits import TASK_PREFIX
from perdure.stores.answers import APPLIED, Applied, Moved, Taken
from perdure.stores.operations import ClaimRuns, ForgetDeadline
from perdure.stores.port import Store
from perdure.stores.records import EVENTS_PAGE, UNREAD_PAGE, LoadedRun, RunFilter, RunRow, Standing, WorkerRow

CHILDREN_PAGE = 1000
# What a worker may hold a run for; to pause it is a step of its own.
HOLDS = ("mismatch", "quarantine")
# What of a run's detail stands in its row.
IN_ROW = tuple(name for name in OwnedDetail.__struct_fields__ if name in RunRow.__struct_fields__)


class StoreRemoteRuns:
    """Runs in a store; the RemoteRuns of an engine."""

    def __init__(self, store: Store, clock: Clock, sessions: WorkerSessions, arrivals: Arrivals) -> None:
        self._store = store
        self._reads = store.reads
        self._clock = clock
        self._sessions = sessions
        self._arrivals = arrivals

    async def claim(self, worker: RemoteWorker, wish: ClaimWish) -> list[HandedRun]:
        """Take runs; first those that it has and does not hold, if it says what it holds."""
        session = await self._sessions.find(worker)
        found: list[HandedRun] = []
        if wish.holding is not None:
            held, owned = {*wish.holding}, await self._reads.remote.owned(worker.worker_id)
            wanted = (run_id for run_id, name in owned.items() if wish.is_owner or not name.startswith(TASK_PREFIX))
            lost = [run_id for run_id in wanted if run_id not in held]
            found += await self._load(session, lost[: wish.limit], None, is_owner=wish.is_owner)
        names = _names(session, is_owner=wish.is_owner)
        if len(found) < wish.limit and names:
            now, room = self._clock.now(), wish.limit - len(found)
            claim = ClaimRuns(worker.worker_id, worker.namespace, session.queues, names, now, room, wish.suspects)
            taken = await session.write(claim)
            if not isinstance(taken, Applied):
                raise refusal_of(taken, self._store.url)
            if isinstance(taken.value, list):
                found += await self._load(session, taken.value, now, is_owner=wish.is_owner)
        return found

    async def next_wake(self, worker: RemoteWorker, *, suspects: bool) -> int | None:
        """When the next run or activity that it could take becomes ripe."""
        session = await self._sessions.find(worker)
        names = _names(session, is_owner=True)
        return await self._reads.next_wake(worker.namespace, session.queues, names, suspects=suspects)

    async def news(self, worker: RemoteWorker, after: int) -> WorkerNews:
        """What has come for its runs since."""
        found, last = await self._reads.new_messages(worker.worker_id, after)
        # What cannot be read is found when its run is loaded, and told there.
        return WorkerNews(last, [each for each in found if not isinstance(each.message, RunUnreadable)])  # type: ignore[misc]  # looked at

    async def _load(
        self, session: WorkerSession, run_ids: Sequence[str], claimed_at: int | None, *, is_owner: bool
    ) -> list[HandedRun]:
        loaded = await self._reads.load_runs(run_ids, session.row.worker_id) if run_ids else []
        runs = [each for each in loaded if not isinstance(each, RunUnreadable)]
        for each in loaded:
            if isinstance(each, RunUnreadable):
                await session.hold(each)
        secret = await self._reads.channels.secret()
        tenure = Tenure(self._store.url, secret)
        return [
            await self._handed(each, tenure, 0, claimed_at, is_owner=is_owner)
            for each in runs
            if is_owner or not each.row.workflow.startswith(TASK_PREFIX)
        ]

    async def _handed(
        self, loaded: LoadedRun, tenure: Tenure, after: int, claimed_at: int | None, *, is_owner: bool
    ) -> HandedRun:
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
            await self._children(row) if loaded.children and not is_owner else {},
            tenure.key_of(row.run_id).hex(),
            len(events) > EVENTS_PAGE,
            _detail(loaded, claimed_at) if is_owner else None,
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

    async def read(self, worker: RemoteWorker, run_id: str, after: int, *, is_owner: bool = False) -> HandedRun:
        """A run that it has, with its events after a number."""
        await self._sessions.find(worker)
        for loaded in await self._reads.load_runs([run_id], worker.worker_id):
            if not isinstance(loaded, RunUnreadable):
                secret = await self._reads.channels.secret()
                return await self._handed(loaded, Tenure(self._store.url, secret), after, None, is_owner=is_owner)
        raise RunNotOwned(run_id, worker.worker_id)

    async def advance(
        self, worker: RemoteWorker, asked: Sequence[RemoteAdvance], *, reads_unread: bool = True
    ) -> list[RemoteProgress | PerdureError]:
        """Do what a worker wants of its runs: of each the commands all or nothing, then what becomes of it.

        All of it is written in one transaction, a group for each run, so that none harms another; what comes second of
        one run, in the next.
        """
        session = await self._sessions.find(worker)
        results: dict[int, RemoteProgress | PerdureError] = {}
        while len(results) < len(asked):
            turn = {each.run_id: place for place, each in reversed([*enumerate(asked)]) if place not in results}
            found = await self._advance_each(
                session, worker, [asked[place] for place in turn.values()], reads_unread=reads_unread
            )
            results.update(zip(turn.values(), found, strict=True))
        return [results[place] for place in range(len(asked))]

    async def _advance_each(
        self, session: WorkerSession, worker: RemoteWorker, asked: Sequence[RemoteAdvance], *, reads_unread: bool
    ) -> list[RemoteProgress | PerdureError]:
        run_ids = [each.run_id for each in asked]
        standings = await self._reads.remote.standings(run_ids)
        named = [run_id for each in asked for run_id in superseded_by(each.commands)]
        found = {row.run_id: row for row in await self._reads.changelog.runs([*run_ids, *named])}
        places = {place for each in asked for place in child_places(each.commands)}
        started = await self._reads.remote.children_at(run_ids, [*places]) if places else {}
        prepared: list[Move | PerdureError] = []
        for each in asked:
            try:
                row, standing = found.get(each.run_id), standings.get(each.run_id)
                if not worker.names_entities and isinstance(row, RunRow):
                    check_entities(each.commands, row.entity_id)
                if named and isinstance(row, RunRow):
                    check_superseded(each.commands, row, found)
                prepared.append(await self._prepared(session, each, row, standing, started.get(each.run_id, {})))
            except PerdureError as error:
                prepared.append(error)
        moves = [each for each in prepared if isinstance(each, Move)]
        await self._write(moves)
        # A message came before the run was let go of, or it is not what it was: then that alone is left out.
        await self._write([move for move in moves if move.keep_instead()])
        await self._tell_others(moves)
        if reads_unread:
            await self._read_kept(moves)
        return [each if isinstance(each, PerdureError) else each.result for each in prepared]

    async def _prepared(
        self,
        session: WorkerSession,
        asked: RemoteAdvance,
        row: RunRow | RunUnreadable | None,
        standing: Standing | None,
        children: Mapping[str, tuple[str, str]],
    ) -> "Move":
        if isinstance(row, RunUnreadable):
            raise row
        worker = session.row
        if row is None or standing is None or (row.owner, row.namespace) != (worker.worker_id, worker.namespace):
            raise RunNotOwned(asked.run_id, worker.worker_id)
        writing = session.begin(row, standing.last)
        if writing.owned.state.seq != asked.after_seq:
            raise OutOfStep(row.run_id, asked.after_seq, writing.owned.state.seq)
        then, unread, published = asked.then, [], {}
        if takes_messages(asked.commands) or isinstance(then, PauseStep):
            unread = await self._reads.unread(row.run_id)
        if counts_published(asked.commands):
            heads = (await self._reads.channels.heads([row.run_id])).get(row.run_id, ())
            published = {head.name: head.own for head in heads if not head.source}
        by_number = {each.number: each for each in unread}
        commands = RunCommands(writing, row, by_number, self._clock.latest(), published, children)
        for command in asked.commands:
            commands.carry_out(command)
        if isinstance(then, PauseStep):
            # Only messages of this very run, and not those of others.
            then = msgspec.structs.replace(then, taken=tuple(each for each in then.taken if each in by_number))
        return Move(session, row, writing, commands, msgspec.structs.replace(asked, then=then))

    async def _write(self, moves: "Sequence[Move]") -> None:
        """Write what there is to write, all in one batch."""
        asked = [(move, move.ask()) for move in moves if move.operations]
        for move, answer in asked:
            move.settle(await move.writing.or_moved(await answer))
        for move in moves:
            if isinstance(move.answer, Moved) and not move.is_let_go:
                seq = await move.session.last_seq(move.row.run_id)
                move.result = OutOfStep(move.row.run_id, move.first_seq, seq)
            elif isinstance(move.answer, Taken):
                other = move.answer.run
                was = f"{other.workflow} ({other.status})"
                move.result = conflict = IdConflict(other.workflow_id, was, "a child", "the id is taken")
                # The worker may find that it is the very child that it means, or wait for it.
                conflict.run_id = other.run_id
            elif not isinstance(move.answer, Applied | Moved):
                move.result = refusal_of(move.answer, self._store.url)

    async def _tell_others(self, moves: "Sequence[Move]") -> None:
        """Parents of runs that ended, and those who take what was let go of or started."""
        written = [move for move in moves if isinstance(move.result, RemoteProgress)]
        for move in written:
            if move.commands.has_ended and move.row.parent_id is not None:
                await self._arrivals.read_if_here(move.row.parent_id)
        if any(move.is_let_go or move.commands.has_ended or move.commands.has_started for move in written):
            self._arrivals.look_around()

    async def _read_kept(self, moves: "Sequence[Move]") -> None:
        """What has come for the runs that are kept."""
        kept = [move for move in moves if isinstance(move.result, RemoteProgress) and move.result.is_kept]
        standings = await self._reads.remote.standings([move.row.run_id for move in kept]) if kept else {}
        for move in kept:
            standing = standings.get(move.row.run_id)
            if standing is not None and not standing.has_unread:
                move.result = RemoteProgress(move.commands.seq, is_kept=True, had=standing.had)
                continue
            try:
                messages, had = await self._reads.unread_page(move.row.run_id, 0, UNREAD_PAGE)
                move.result = RemoteProgress(move.commands.seq, is_kept=True, messages=messages, had=had)
            except RunUnreadable as error:
                move.result = error

    async def end(self, worker: WorkerRow, run_id: str, end: RunTerminated | RunCancelled | RunTimedOut) -> None:
        """End a run or a task of a worker in its name; one that it has not any more is left alone."""
        # Refused when its worker was quicker, or has lost its lease: the next look finds what is left to do. One that
        # cannot be read is told of where it is loaded, and keeps no other from being ended.
        with suppress(LeaseLost, RunUnreadable):
            row = await self._reads.run(worker.namespace, run_id)
            if row is None or row.owner != worker.worker_id:
                return
            writing = WorkerSession(worker, self._sessions).begin(row, await self._reads.last_event(run_id))
            writing.owner.advance(writing.owned, CloseRun(end))
            writing.add(ForgetDeadline(run_id))
            if isinstance(await writing.write(), Applied) and row.parent_id is not None:
                await self._arrivals.read_if_here(row.parent_id)


class Move:
    """What one call wants of one run: its commands, and then what becomes of it, in one group."""

    def __init__(
        self, session: WorkerSession, row: RunRow, writing: Writing, commands: RunCommands, asked: RemoteAdvance
    ) -> None:
        self.row = row
        self.commands = commands
        self.first_seq = asked.after_seq
        self.session = session
        self.writing = writing
        self._commanded = writing.operations if asked.commands else []
        # Whether the group lets go of the run.
        self.is_let_go = not commands.has_ended and self._let_go(asked.then)
        self.operations = writing.operations if self.is_let_go else self._commanded
        self.answer: Settlement = APPLIED
        self.result: RemoteProgress | PerdureError = self._progress()

    def _let_go(self, then: NextStep) -> bool:
        owned = self.writing.owned
        match then:
            case KeepStep():
                return False
            case ParkStep(had, wake_at, waiting):
                check_waiting("park", waiting)
                owned.messages = had
                text = msgspec.json.format(bytes(waiting), indent=0).decode()
                how: Park | HandBack | Hold | Pause = Park(wake_at, text)
            case HandBackStep():
                how = HandBack()
            case HoldStep(reason, report):
                if reason not in HOLDS:
                    raise BadField("hold", f"the reason is {reason!r}; give one of {', '.join(HOLDS)}")
                check_report("hold", report)
                how = Hold(reason, report)
            case PauseStep(had, report, tasks, taken):
                check_report("pause", report)
                check_report("pause", tasks)
                owned.messages = had
                how = Pause(report, tasks, taken)
        self.writing.owner.release(owned, how, lambda _: None)
        return True

    def _progress(self) -> RemoteProgress:
        return RemoteProgress(self.commands.seq, is_kept=not self.commands.has_ended and not self.is_let_go)

    def ask(self) -> "asyncio.Future[Settlement]":
        """Put it into the next batch."""
        return self.session.ask(*self.operations)

    def settle(self, answer: Settlement) -> None:
        """Note what became of it; LeaseLost."""
        self.answer = self.session.held(answer)
        if not (self.is_let_go and isinstance(answer, Moved)):
            self.writing.settle(answer)

    def keep_instead(self) -> bool:
        """Whether it is to be written without letting go of the run, for that was refused."""
        if not (self.is_let_go and isinstance(self.answer, Moved)):
            return False
        self.is_let_go, self.operations, self.answer = False, self._commanded, APPLIED
        self.result = self._progress()
        return True


def _names(session: WorkerSession, *, is_owner: bool) -> tuple[str, ...]:
    """What a worker has code for that is handed to it as runs."""
    return tuple(name for name in session.workflows if is_owner or not name.startswith(TASK_PREFIX))


def _detail(loaded: LoadedRun, claimed_at: int | None) -> OwnedDetail:
    """What an owner knows of a run besides."""
    row = loaded.row
    kept = {name: getattr(row, name) for name in IN_ROW}
    return OwnedDetail(
        **kept,
        has_begun_before=has_begun_before(loaded, claimed_at),
        has_all_messages=loaded.messages is not None,
        attempts=tuple(
            FailedTry(each.place, each.attempt, each.name, error_value(each.failure), each.at, each.next_at)
            for each in loaded.attempts
        ),
        started=tuple(loaded.children),
        progress=tuple(loaded.progress),
        unanswered=tuple(loaded.unanswered),
        heads=tuple(loaded.heads),
    )
