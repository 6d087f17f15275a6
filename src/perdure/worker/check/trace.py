"""Traces a run: replays it, and tells beside each event the line of code that takes it.

In:   the engine, a run, open or closed, and the workflow's code in this process.
Out:  each event with the file and line that waited for it; where every branch waits at the end; why it does not fit, if
      it does not. Nothing is written, and nothing runs but the workflow's own code.
"""

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, CoroutineType, FrameType
from typing import Any

from perdure.authoring.workflow import Workflow
from perdure.engine.ports import Engine
from perdure.kernel.events import CLOSINGS, Event
from perdure.views.check import Trace, TracedEvent, TracedWait
from perdure.views.run import event_view
from perdure.worker.calls.call import DurableCall, Mismatch
from perdure.worker.check.check import history_of_open, program_of
from perdure.worker.loop.exits import EXITS, is_for_the_process
from perdure.worker.program import Program

# What lies in here is not the user's own code.
OURS = (str(Path(__file__).parent.parent.parent), str(Path(asyncio.__file__).parent))


class _Lines(dict[str, DurableCall]):
    """The calls that wait, by place; notes for each the line of the user's code that made it."""

    def __init__(self, program: Program) -> None:
        super().__init__(program.pending)
        self.by_place: dict[str, str | None] = {}
        self._program = program

    def __setitem__(self, place: str, call: DurableCall) -> None:
        super().__setitem__(place, call)
        self.by_place[place] = _line_above(sys._getframe(1)) or self._line_of_main()

    def _line_of_main(self) -> str | None:
        """Where the workflow's own function stands: a call that a task of asyncio makes has no line above it."""
        main = self._program.main
        line, work = None, None if main is None else main.get_coro()
        while isinstance(work, CoroutineType):
            if work.cr_frame is not None and _is_users(work.cr_code):
                line = f"{work.cr_code.co_filename}:{work.cr_frame.f_lineno}"
            work = work.cr_await
        return line


def _line_above(frame: FrameType | None) -> str | None:
    """The nearest line of the user's code that called; None when there is none before the loop."""
    while frame is not None and not _is_loop(frame.f_code):
        if _is_users(frame.f_code):
            return f"{frame.f_code.co_filename}:{frame.f_lineno}"
        frame = frame.f_back
    return None


def _is_users(code: CodeType) -> bool:
    return not code.co_filename.startswith((*OURS, "<"))


def _is_loop(code: CodeType) -> bool:
    """Whether a frame is where a loop runs what is ready; what called that is not the workflow."""
    return code is Program.begin.__code__ or code is Program.deliver.__code__


async def trace(engine: Engine, namespace: str, run_id: str, workflow: Workflow[..., Any]) -> Trace:
    """Replay a run; RunNotFound, RunUnreadable."""
    row = await engine.reader.read(namespace, run_id)
    history = await history_of_open(engine, namespace, row)
    first = await engine.reader.events(namespace, run_id, 0, 1)
    closing = await engine.reader.events(namespace, run_id, history[-1].seq if history else 1, 1)
    program = program_of(workflow, row, history)
    lines = program.pending = program.runtime.pending = _Lines(program)
    seen = [TracedEvent(event_view(event), _definition(workflow)) for event in first]
    trouble, waits = None, list[TracedWait]()
    try:
        seen += _replay(program, history, lines)
    except Mismatch as mismatch:
        trouble = str(mismatch)
    except (Exception, *EXITS) as error:
        if is_for_the_process(error):
            raise
        trouble = f"{type(error).__name__}: {error}"
    finally:
        pending = [call for call in program.pending.values() if call.is_waiting]
        waits = [TracedWait(call.kind, call.place, lines.by_place.get(call.place)) for call in pending]
        has_ended = program.is_done
        program.evict()
    seen += [TracedEvent(event_view(event), None) for event in closing if type(event.fact) in CLOSINGS]
    return Trace(row.workflow_id, run_id, row.workflow, tuple(seen), tuple(waits), has_ended, trouble)


def _replay(program: Program, history: list[Event], lines: _Lines) -> Iterator[TracedEvent]:
    """Hand over event by event, each told when the code has taken it."""
    program.begin()
    for event in history:
        line = lines.by_place.get(event.place) if event.place else None
        program.redeliver(event)
        yield TracedEvent(event_view(event), line)


def _definition(workflow: Workflow[..., Any]) -> str | None:
    code = getattr(workflow.fn, "__code__", None)
    return None if code is None else f"{code.co_filename}:{code.co_firstlineno}"
