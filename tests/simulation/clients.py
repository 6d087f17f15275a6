"""Clients: what the outside world asks of the engine, again and again until it is answered.

In:   a plan of requests for one schedule.
Out:  requests made through one process or another; what was acknowledged.

A request that gets no answer, because its process died or the database was unavailable,
is made again under the same ids, as a careful caller does.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any

from perdure.app import Bulk, Perdure, Run
from perdure.errors import (
    AlreadyResolved,
    BadForkPoint,
    BadSchedule,
    IdConflict,
    NotAnswered,
    NotOpen,
    RunCancelled,
    RunClosed,
    RunFailed,
    RunNotFound,
    RunNotHeld,
    RunOpen,
    RunTerminated,
    RunTimedOut,
    ScheduleNotFound,
    SinkExists,
    SinkNotFound,
    SinkNotReady,
    StoreUnavailable,
)
from tests.simulation.programs import Part, sim_deferreds, sim_request, sim_run, sim_signals
from tests.simulation.simulator import Node

REFUSALS = (
    *(RunClosed, RunNotFound, IdConflict, AlreadyResolved, NotAnswered, RunOpen, BadForkPoint, RunNotHeld),
    *(BadSchedule, ScheduleNotFound),
    *(SinkExists, SinkNotReady, SinkNotFound),
)
# What the id of a fork ends with.
FORKED = "-fork"
ENDS = (RunCancelled, RunTerminated, RunTimedOut, RunFailed)


class Request:
    """Something a client wants; done once it was answered, with `answer` or with a refusal."""

    def __init__(self, key: str, after_step: int) -> None:
        self.key = key
        self.after_step = after_step
        self.is_done = False
        self.under_way: tuple[Node, int] | None = None
        self.answer: Any = None
        self.refusal: Exception | None = None
        self.tries = 0
        # Whether the answer was an error that no caller should ever see.
        self.is_surprised = False

    def begin(self, node: Node) -> None:
        """Ask through this process."""
        self.under_way = (node, node.boots)
        self.tries += 1
        node.spawn(self.ask(node.app), self._answered)

    @property
    def is_free(self) -> bool:
        """Whether nobody is about to answer: it was not asked yet, or the process died that was."""
        if self.under_way is None:
            return True
        node, boots = self.under_way
        return not node.is_alive or node.boots != boots

    def ask(self, app: Perdure) -> Coroutine[Any, Any, Any]:
        raise NotImplementedError

    def _answered(self, task: "asyncio.Task[Any]") -> None:
        error = None if task.cancelled() else task.exception()
        if self.under_way is None or not self.under_way[0].is_alive or task.cancelled():
            return
        self.under_way = None
        if isinstance(error, StoreUnavailable | NotOpen):
            return
        if error is not None and not isinstance(error, (*REFUSALS, *ENDS)):
            self.is_surprised = True
        self.is_done = True
        self.answer = None if error is not None else task.result()
        self.refusal = error  # type: ignore[assignment]  # as said
        self.acknowledged(self)

    @staticmethod
    def acknowledged(request: "Request") -> None:
        """What the schedule does with the answer."""


class StartRun(Request):
    """Start a program under an id."""

    def __init__(self, key: str, after_step: int, program: list[Part], options: dict[str, Any]) -> None:
        super().__init__(key, after_step)
        self.program = program
        self.options = options

    async def ask(self, app: Perdure) -> Run[Any]:
        return await app.start(sim_run.options(id=self.key, **self.options), self.program, [])


class OfRun(Request):
    """Something for the run of an id; `run_id` if it is for exactly that one."""

    async def ask(self, app: Perdure) -> Any:
        return await self.of(await app.get(self.key))

    async def of(self, run: Run[Any]) -> Any:
        raise NotImplementedError


class SendSignal(OfRun):
    """Send a signal under an id of its own, perhaps to be received later."""

    def __init__(self, key: str, after_step: int, name: str, payload: str, delay: float = 0) -> None:
        super().__init__(key, after_step)
        self.name = name
        self.payload = payload
        self.delay = delay

    async def of(self, run: Run[Any]) -> None:
        await run.signal(sim_signals[self.name], self.payload, id=self.payload, delay=self.delay)


class SignalAnew(OfRun):
    """Send a signal without an id: it is sent as often as it is asked for, however often a request arrives."""

    name = "red"

    def __init__(self, key: str, after_step: int, payload: str) -> None:
        super().__init__(key, after_step)
        self.payload = payload

    async def of(self, run: Run[Any]) -> None:
        await run.signal(sim_signals[self.name], self.payload)


class ResolveDeferred(OfRun):
    """Resolve a deferred; another client may have done so with another value."""

    def __init__(self, key: str, after_step: int, name: str, payload: str) -> None:
        super().__init__(key, after_step)
        self.name = name
        self.payload = payload

    async def of(self, run: Run[Any]) -> None:
        await run.resolve(sim_deferreds[self.name], self.payload)


class AskRun(OfRun):
    """Ask a run, under an id of its own, and wait for its answer."""

    name = "asked"

    def __init__(self, key: str, after_step: int, payload: str) -> None:
        super().__init__(key, after_step)
        self.payload = payload

    async def of(self, run: Run[Any]) -> str:
        return await run.ask(sim_request, self.payload, id=self.payload)


class CancelRun(OfRun):
    """Ask a run to stop, perhaps by a deadline."""

    def __init__(self, key: str, after_step: int, deadline: float | None) -> None:
        super().__init__(key, after_step)
        self.deadline = deadline

    async def of(self, run: Run[Any]) -> str:
        await run.cancel("enough", deadline=self.deadline)
        return run.run_id


class TerminateRun(OfRun):
    """End a run at once."""

    async def of(self, run: Run[Any]) -> str:
        await run.terminate("enough")
        return run.run_id


class PauseOne(OfRun):
    """Have a run begin nothing more."""

    async def of(self, run: Run[Any]) -> str:
        await run.pause("a while")
        return run.run_id


class ResumeOne(OfRun):
    """Let a paused run go on."""

    async def of(self, run: Run[Any]) -> str:
        await run.resume()
        return run.run_id


class BroadcastAll(Request):
    """Send a signal to all runs, under an id of its own; `open_runs` were there and open when it was last begun."""

    name = "red"

    def __init__(self, after_step: int, payload: str) -> None:
        super().__init__("all", after_step)
        self.payload = payload
        self.open_runs: list[str] = []

    async def ask(self, app: Perdure) -> Bulk:
        return await app.broadcast(sim_signals[self.name], self.payload, where="true", id=self.payload)


class PauseAll(Request):
    """Pause all runs."""

    async def ask(self, app: Perdure) -> Bulk:
        return await app.pause_all(where="status != 'completed'", reason="a while")


class OfEndedRun(OfRun):
    """Something for exactly the run that had the id when it was first asked for."""

    run_id = ""

    async def ask(self, app: Perdure) -> Any:
        run = await (app.get(run_id=self.run_id) if self.run_id else app.get(self.key))
        self.run_id = run.run_id
        return await self.of(run)


class RetryRun(OfEndedRun):
    """Run again what failed, or go on where a run was stopped; perhaps the very run that another client has retried."""

    def __init__(self, key: str, after_step: int, after: "RetryRun | None" = None) -> None:
        super().__init__(key, after_step)
        self.after = after

    def begin(self, node: Node) -> None:
        if self.after is not None:
            self.run_id = self.after.run_id
        super().begin(node)

    async def of(self, run: Run[Any]) -> str:
        return (await run.retry("again")).run_id


class ForkRunAt(OfEndedRun):
    """Go on from an event, under another id."""

    def __init__(self, key: str, after_step: int, at: int) -> None:
        super().__init__(key, after_step)
        self.at = at

    async def of(self, run: Run[Any]) -> str:
        return (await run.fork(self.at, id=f"{self.key}{FORKED}")).run_id


class AwaitResult(OfRun):
    """Wait for what a run comes to."""

    run_id = ""

    async def of(self, run: Run[Any]) -> Any:
        self.run_id = run.run_id
        return await run.result()
