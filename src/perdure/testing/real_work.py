"""What activities really wait for: a thread, a process, a socket; no virtual clock can hurry that.

In:   an event loop with activities in tasks.
Out:  what they wait for outside of it, in words, or nothing.
What merely awaits objects of asyncio, a sleep or a lock, waits for nothing real.
"""

import asyncio
import inspect
import logging
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, TypeAlias

import perdure
from perdure.clock import elapsed
from perdure.worker.activities import without_exit

Task: TypeAlias = "asyncio.Task[Any]"

log = logging.getLogger("perdure.testing")

# After so long it is told what the clock stands still for.
PATIENCE_SECONDS = 30.0
_ASYNCIO, _OURS = Path(asyncio.__file__).parent, Path(perdure.__file__).parent
# Modules whose waits end by what other tasks do, or by the loop's clock; and their functions that wait for tasks, of
# which one may wait for something real.
_INSIDE = {str(_ASYNCIO / name) for name in ("locks.py", "queues.py", "tasks.py", "taskgroups.py")}
_FOR_TASKS = {"_wait", "wait_for", "__aexit__"}
_PROCESSES = str(_ASYNCIO / "base_subprocess.py")


class Patience:
    """Tells once what is waited for, when that has taken long by the clock of the machine."""

    def __init__(self) -> None:
        self._until: float | None = elapsed() + PATIENCE_SECONDS

    @property
    def is_over(self) -> bool:
        return self._until is not None and elapsed() > self._until

    def tell(self, what: str) -> None:
        self._until = None
        text = "the environment's clock stands still since %g s: %s; time passes again when that is over"
        log.warning(text, PATIENCE_SECONDS, what, extra={"event": "clock_stands_still"})


def real_work() -> str | None:
    """What an activity in a task of this loop really waits for; None when none does."""
    tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    rest = [task for task in tasks if not _is_ours(task)]
    for task in tasks:
        if _is_activity(task) and (what := _outside(task, rest)):
            called = inspect.getcoroutinelocals(task.get_coro())["fn"]  # type: ignore[arg-type]  # a coroutine of ours
            return f"{called.__qualname__}() waits for {what}"
    return None


def is_about_to_go_on() -> bool:
    """Whether the loop has something to do in its next turn."""
    return bool(getattr(asyncio.get_running_loop(), "_ready", ()))


def busy_threads() -> str:
    """Where the threads are that plain activities run in."""
    frames = sys._current_frames()
    found = [frames.get(thread.ident or 0) for thread in threading.enumerate() if "perdure-activity" in thread.name]
    return " and ".join(f"a thread in {_place(frame)}" for frame in found if frame and frame.f_code.co_name != "_next")


def _is_activity(task: Task) -> bool:
    return getattr(task.get_coro(), "cr_code", None) is without_exit.__code__


def _is_ours(task: Task) -> bool:
    code = getattr(task.get_coro(), "cr_code", None)
    return code is not None and Path(code.co_filename).is_relative_to(_OURS)


def _outside(task: Task, rest: Sequence[Task]) -> str | None:
    """What a task waits for outside of the loop: itself, or through one of the rest."""
    future = task._fut_waiter  # type: ignore[attr-defined]  # nobody else knows
    if future is None:
        # It has ended, or goes on in a moment.
        return None
    parts = [future] if isinstance(future, asyncio.Task) else getattr(future, "_children", [])
    if parts:
        return next((what for part in parts if (what := _outside_of(part))), None)
    return _outside_of(future) or _outside_by_place(_innermost(task), rest)


def _outside_by_place(frame: FrameType | None, rest: Sequence[Task]) -> str | None:
    """What code waits for that stands here: objects of asyncio, or something the loop watches for it."""
    file, name = (frame.f_code.co_filename, frame.f_code.co_name) if frame else ("", "")
    if file == _PROCESSES:
        return f"a process in {_place(frame)}"
    if file in _INSIDE and name not in _FOR_TASKS:
        return None
    if file not in _INSIDE and (watched := next(_watched(), None)) is not None:
        return f"{watched} in {_place(frame)}"
    return next((what for other in rest if (what := _outside(other, ()))), None)


def _outside_of(future: Any) -> str | None:
    """What a future waits for, if that shows: another task, or work that was given to an executor."""
    if isinstance(future, asyncio.Task):
        return _outside(future, ())
    callbacks = [callback for callback, _ in getattr(future, "_callbacks", None) or ()]
    is_chained = any("_chain_future.<locals>" in getattr(callback, "__qualname__", "") for callback in callbacks)
    return "a thread or a process of an executor" if is_chained else None


def _innermost(task: Task) -> FrameType | None:
    """Where a task stands, if its code shows that."""
    awaited: Any = task.get_coro()
    frame: FrameType | None = None
    while awaited is not None:
        frame = getattr(awaited, "cr_frame", None) or getattr(awaited, "gi_frame", None) or frame
        awaited = getattr(awaited, "cr_await", None) or getattr(awaited, "gi_yieldfrom", None)
    return frame


def _watched() -> Iterator[str]:
    """The sockets and pipes the loop watches, but for its own, those where others are let in, and our connections."""
    loop: Any = asyncio.get_running_loop()
    selector = getattr(loop, "_selector", None)
    for key in list(selector.get_map().values()) if selector is not None else ():
        callbacks = [handle._callback for handle in key.data if handle is not None]
        is_own = key.fd == loop._ssock.fileno() or loop._accept_connection in callbacks
        if not is_own and not any(map(_is_our_connection, callbacks)):
            yield f"a socket or a pipe (file {key.fd})"


def _is_our_connection(callback: Any) -> bool:
    transport = getattr(callback, "__self__", None)
    protocol = transport.get_protocol() if isinstance(transport, asyncio.Transport) else None
    settings = getattr(protocol, "get_settings", lambda: None)()
    return str(getattr(settings, "application_name", "")).startswith("perdure ")


def _place(frame: FrameType | None) -> str:
    return f"{frame.f_code.co_name}() ({frame.f_code.co_filename}:{frame.f_lineno})" if frame else "other code"
