"""Writes: what all runs of this worker want is gathered, and told to the server in as few requests as can be.

In:   commands of owned runs, in order, each with what to do once it is written.
Out:  one request after another, each for many runs; effects once it is answered.

While a request is under way the next one gathers. An answer that is lost is asked for again: the number of a run's last
event tells whether its commands were written, and what has no number may be written twice without harm. What
cannot be told is left to a fresh look at the run.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Protocol

import msgspec

from perdure.clock import Clock, pause
from perdure.engine.outages import Outage
from perdure.engine.ports import Host, OwnedRun, Tenure
from perdure.engine.ports.remote_runs import EVENTFUL, ChildCommand, CloseCommand, ContinueCommand, PublishCommand
from perdure.engine.ports.remote_runs import RemoteCommand as Wire
from perdure.errors import LeaseLost, PerdureError, StoreUnavailable
from perdure.kernel.run import RunState
from perdure.kernel.status import Status

log = logging.getLogger("perdure.worker")

# So many runs, and about so many bytes, go into a request.
MOST_RUNS, MOST_BYTES = 500, 2_000_000
FIRST_PAUSE_MS, LONGEST_PAUSE_MS = 50, 1000
UNAVAILABLE = 503
ENDS = (CloseCommand, ContinueCommand)


class WrittenCommand:
    """A command, what to do once it is written, and what when it is refused for its own sake."""

    __slots__ = ("command", "is_event", "refused", "written")

    def __init__(
        self,
        command: Wire,
        written: Callable[[], None] | None,
        refused: Callable[[dict[str, Any]], None] | None = None,
    ) -> None:
        self.command = command
        self.is_event = isinstance(command, EVENTFUL)
        self.written = written
        self.refused = refused


class RunWrites:
    """What is wanted of one run and not written yet."""

    __slots__ = ("commands", "done", "is_again", "is_single", "owned", "then")

    def __init__(self, owned: OwnedRun) -> None:
        self.owned = owned
        self.commands: list[WrittenCommand] = []
        # What becomes of it then, and who is told whether it was let go of.
        self.then: object = None
        self.done: Callable[[bool], None] | None = None
        # Whether its commands are to be told one by one, to find the one at fault.
        self.is_single = False
        # Whether it was told before, and the answer was lost.
        self.is_again = False

    @property
    def events(self) -> int:
        return sum(each.is_event for each in self.commands)

    def taken(self) -> "RunWrites":
        """What goes into a request, the rest stays here."""
        part = RunWrites(self.owned)
        part.is_single = self.is_single
        if self.is_single and self.commands:
            part.commands, self.commands = self.commands[:1], self.commands[1:]
        else:
            part.commands, self.commands = self.commands, []
            part.is_single = False
        if not self.commands:
            part.then, part.done, self.then, self.done = self.then, self.done, None, None
        self.is_single = bool(self.commands)
        return part


class RunPart(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is wanted of one run, as it stands in a request."""

    run_id: str
    after_seq: int
    commands: list[Wire]
    then: Any = "keep"


class RunAnswer(msgspec.Struct, frozen=True):
    """What became of that."""

    seq: int = 0
    kept: bool = False
    problem: dict[str, Any] | None = None


class WritesServer(Protocol):
    """Who is told, and what else its answers are about."""

    @property
    def host(self) -> Host | None: ...

    async def advance(self, parts: list[bytes]) -> list[RunAnswer]:
        """Tell the server; LeaseLost, StoreUnavailable."""

    def is_over(self) -> bool:
        """Whether the lease is over, as far as is known here."""

    @property
    def tenure(self) -> Tenure: ...

    def lost(self, tenure: Tenure) -> None:
        """Nothing of what was given under this is ours any more."""

    def let_go(self, run_id: str) -> None:
        """A run is not this worker's any more."""

    def load_again(self, run_id: str) -> None:
        """What is known of a run here is not what the server has."""


class WorkerWrites:
    """Gathers what runs want, and tells the server."""

    def __init__(self, server: WritesServer, clock: Clock) -> None:
        self._server = server
        self._clock = clock
        self._queue: dict[str, RunWrites] = {}
        self._task: asyncio.Task[None] | None = None
        self._calm: asyncio.Event = asyncio.Event()
        self._calm.set()
        self.is_stalled = False
        self.requests = 0
        self._outage = Outage(
            clock, "writing_failed", "the server does not take what runs have done, will try again", "it does again"
        )

    # Gathering

    def add(
        self,
        owned: OwnedRun,
        command: Wire,
        written: Callable[[], None] | None = None,
        refused: Callable[[dict[str, Any]], None] | None = None,
    ) -> None:
        """Have a command told to the server."""
        commands, added = self._of(owned).commands, WrittenCommand(command, written, refused)
        if commands and isinstance(commands[-1].command, ENDS) and not added.is_event:
            # After its end nothing may come; what is no event has no order.
            commands.insert(-1, added)
        else:
            commands.append(added)

    def let_go(self, owned: OwnedRun, then: object, done: Callable[[bool], None]) -> None:
        """Have a run let go of, after all that was wanted of it."""
        writes = self._of(owned)
        writes.then, writes.done = then, done

    def _of(self, owned: OwnedRun) -> RunWrites:
        writes = self._queue.get(owned.run_id)
        if writes is None:
            writes = self._queue[owned.run_id] = RunWrites(owned)
            if self._task is None:
                self._calm.clear()
                self._task = asyncio.get_running_loop().create_task(self._write())
        return writes

    @property
    def is_idle(self) -> bool:
        return self._task is None

    async def idle(self) -> None:
        """Until everything is written."""
        await self._calm.wait()

    def drop(self) -> None:
        """Forget what was wanted: nothing of it is ours."""
        queue, self._queue = self._queue, {}
        for writes in queue.values():
            _forget(writes)
        self.is_stalled = False

    def cancel(self) -> None:
        """Write nothing more."""
        self.drop()
        if self._task is not None:
            self._task.cancel()

    # Telling

    async def _write(self) -> None:
        try:
            # What all runs want at this turn of the loop goes together.
            await asyncio.sleep(0)
            while self._queue:
                taken, parts = self._next()
                answers = await self._told(taken, parts)
                if answers is not None:
                    for part, answer in zip(taken, answers, strict=True):
                        self._settle(part, answer)
        finally:
            self._task = None
            self._calm.set()

    def _next(self) -> tuple[list[RunWrites], list[bytes]]:
        """What goes into the next request."""
        taken: list[RunWrites] = []
        parts: list[bytes] = []
        size = 0
        for run_id, writes in list(self._queue.items()):
            if len(taken) == MOST_RUNS or size > MOST_BYTES:
                break
            unsent = writes.events
            part = writes.taken()
            if not writes.commands and writes.then is None:
                del self._queue[run_id]
            wire = [each.command for each in part.commands]
            then = "keep" if part.then is None else part.then
            data = msgspec.json.encode(RunPart(run_id, part.owned.state.seq - unsent, wire, then))
            size += len(data)
            taken.append(part)
            parts.append(data)
        return taken, parts

    async def _told(self, taken: list[RunWrites], parts: list[bytes]) -> list[RunAnswer] | None:
        """The answers of the server, however often it is asked; None when nothing of it is ours any more."""
        tenure, wait = self._server.tenure, FIRST_PAUSE_MS
        while taken:
            self.requests += 1
            try:
                answers = await self._server.advance(parts)
            except LeaseLost:
                self._server.lost(tenure)
                return None
            except StoreUnavailable as error:
                self._outage.fails(error)
                self.is_stalled = True
            except PerdureError as error:
                return await self._one_run_at_a_time(taken, parts, error)
            else:
                self._outage.is_over()
                self.is_stalled = False
                return answers if tenure is self._server.tenure else None
            if self._server.is_over():
                self._server.lost(tenure)
            else:
                await pause(self._clock, wait)
                wait = min(wait * 2, LONGEST_PAUSE_MS)
            if tenure is not self._server.tenure:
                return None
            self._leave_doubtful(taken, parts)
        return []

    def _leave_doubtful(self, taken: list[RunWrites], parts: list[bytes]) -> None:
        """What would be there twice is not told again: it is looked what the server has of these runs."""
        for place in reversed(range(len(taken))):
            taken[place].is_again = True
            if _publishes_beside(taken[place]):
                part = taken.pop(place)
                del parts[place]
                _forget(part)
                self._load_again(part.owned)

    async def _one_run_at_a_time(
        self, taken: list[RunWrites], parts: list[bytes], error: PerdureError
    ) -> list[RunAnswer] | None:
        """A request that was refused as a whole is told run by run, to find the one at fault."""
        if len(taken) == 1:
            return [RunAnswer(problem={"error": type(error).__name__, "detail": str(error)})]
        answers: list[RunAnswer] = []
        for part, data in zip(taken, parts, strict=True):
            answer = await self._told([part], [data])
            if answer is None:
                return None
            answers += answer or [RunAnswer(problem={"error": "OutOfStep"})]
        return answers

    # What came of it

    def _settle(self, part: RunWrites, answer: RunAnswer) -> None:
        try:
            if answer.problem is None:
                self._written(part, is_kept=answer.kept)
            else:
                self._refused(part, answer.problem)
        except Exception:
            log.exception("what follows a write failed", extra={"event": "run_broken", "run_id": part.owned.run_id})

    def _written(self, part: RunWrites, *, is_kept: bool) -> None:
        if not is_kept:
            self._server.let_go(part.owned.run_id)
        for each in part.commands:
            if each.written is not None:
                each.written()
        if part.done is not None:
            part.done(not is_kept)

    def _refused(self, part: RunWrites, problem: dict[str, Any]) -> None:
        owned, error = part.owned, problem.get("error")
        first_seq = owned.state.seq - self._unsent(owned) - part.events
        last = part.commands[-1].command if part.commands else None
        ends = part.then is not None or isinstance(last, ENDS)
        if error == "RunNotOwned":
            if part.is_again and ends:
                self._written(part, is_kept=False)
            else:
                self._server.let_go(owned.run_id)
                self._evict(owned)
        elif error == "OutOfStep":
            seq = problem.get("seq")
            if part.is_again and part.events and seq == first_seq + part.events:
                self._was_written(part)
            elif seq == first_seq and any(_supersedes(each) for each in part.commands):
                self._one_by_one(part, problem)
            else:
                self._load_again(owned)
        elif error == "IdConflict" and any(isinstance(each.command, ChildCommand) for each in part.commands):
            self._one_by_one(part, problem)
        elif problem.get("status") == UNAVAILABLE:
            self._ask_again(part)
        else:
            self._break(part, str(problem.get("detail")))

    def _ask_again(self, part: RunWrites) -> None:
        """The server could not write, or does not know whether it has."""
        part.is_again = True
        if _publishes_beside(part):
            _forget(part)
            self._load_again(part.owned)
        else:
            self._put_back(part)

    def _was_written(self, part: RunWrites) -> None:
        """The answer was lost, the commands were not; whether the run was let go of is asked again."""
        then, done, part.then, part.done = part.then, part.done, None, None
        self._written(part, is_kept=True)
        if done is not None:
            self.let_go(part.owned, then, done)
            self._queue[part.owned.run_id].is_again = True

    def _one_by_one(self, part: RunWrites, problem: dict[str, Any]) -> None:
        """One of the commands is refused for its own sake: nothing of them is written, and each is told alone."""
        if len(part.commands) > 1:
            self._put_back(part)
            self._queue[part.owned.run_id].is_single = True
            return
        if part.done is not None:
            self.let_go(part.owned, part.then, part.done)
        refused = part.commands[0].refused
        assert refused is not None
        refused(problem)

    def _put_back(self, part: RunWrites) -> None:
        """Have the same told once more, before what was wanted since."""
        writes = self._of(part.owned)
        writes.commands = [*part.commands, *writes.commands]
        writes.is_again = part.is_again
        if part.done is not None:
            writes.then, writes.done = part.then, part.done

    def _unsent(self, owned: OwnedRun) -> int:
        writes = self._queue.get(owned.run_id)
        return 0 if writes is None else writes.events

    def _load_again(self, owned: OwnedRun) -> None:
        self._evict(owned)
        self._server.load_again(owned.run_id)

    def _evict(self, owned: OwnedRun) -> None:
        writes = self._queue.pop(owned.run_id, None)
        if writes is not None:
            _forget(writes)
        if self._server.host is not None:
            self._server.host.evict(owned.run_id)

    def _break(self, part: RunWrites, trouble: str) -> None:
        """The server will never take this: the run is held where it stands there."""
        owned = part.owned
        seq = owned.state.seq - self._unsent(owned) - part.events
        self._queue.pop(owned.run_id, None)
        owned.state = RunState(Status.RUNNING, seq, owned.state.at)
        if self._server.host is not None:
            self._server.host.broken(owned.run_id, trouble)


def _supersedes(written: WrittenCommand) -> bool:
    return isinstance(written.command, ChildCommand) and written.command.supersedes is not None


def _publishes_beside(part: RunWrites) -> bool:
    """Whether activities of the run publish in it: written twice, that would be there twice."""
    return any(isinstance(each.command, PublishCommand) and each.command.source for each in part.commands)


def _forget(writes: RunWrites) -> None:
    """What is not written any more; who waits for room to publish goes on."""
    for each in writes.commands:
        if isinstance(each.command, PublishCommand) and each.written is not None:
            each.written()
