"""Calls that were never awaited: what a forgotten `await` leaves behind, found when it is thrown away.

In:   coroutines that Python threw away before they had begun; it tells of them as of this is installed.
Out:  for a call of an activity or a child, or a wait, that a live run has forgotten, an error with the line of the
      call, which the run fails with at its end; for all others the warning that Python gives.

A call that is awaited costs nothing here. Forgotten is a call that was dropped on the spot, or taken for its value
(`if is_paid(order):`), or kept in a variable that nobody awaited. A call that was handed to somebody else may have been
dropped by an error or a cancellation on its way, which is no mistake; nor is what a run holds that is cancelled or let
go of. All of it follows from the code and its history, so every replay comes to the same verdict.
"""

import dis
import linecache
import re
import sys
import warnings
from asyncio.events import _get_running_loop
from collections.abc import Callable, Iterator
from itertools import pairwise
from types import CodeType, FrameType
from typing import Any

from perdure.authoring.activity import Activity
from perdure.authoring.calls import interrupted, sleep
from perdure.authoring.deferreds import Deferred
from perdure.authoring.function import DecoratedFunction
from perdure.authoring.lint.check import look
from perdure.authoring.requests import Request
from perdure.authoring.signals import Signal
from perdure.authoring.undo import unwind
from perdure.authoring.workflow import Workflow
from perdure.errors import NeverAwaited
from perdure.worker.loop.loop import RunLoop

_CALLS = frozenset({Activity._call.__code__, Workflow._call.__code__})
# What else of ours does nothing unless it is awaited; told when it was dropped on the spot.
_WAITS = {
    unwind.__code__: "unwind()",
    sleep.__code__: "sleep()",
    interrupted.__code__: "interrupted()",
    Deferred.wait.__code__: "wait()",
    Signal.receive.__code__: "receive()",
    Request.receive.__code__: "receive()",
}
_CALLING = frozenset({"CALL", "CALL_KW", "CALL_FUNCTION_EX"})
# What takes a value and leaves nothing of it: a statement, a condition, a comparison, an f-string; in all Pythons.
_USING_UP = (
    *("POP_TOP", "POP_JUMP_", "JUMP_IF_", "TO_BOOL", "UNARY_NOT", "IS_OP", "COMPARE_OP", "CONTAINS_OP"),
    *("FORMAT_", "CONVERT_VALUE"),
)
# What may come between a call and that: the other side of a comparison, and the beginnings of `and` and `or`.
_BETWEEN = ("LOAD_", "COPY", "TO_BOOL", "POP_JUMP_")


def watch_calls() -> None:
    """Find calls that are never awaited, from now on and in the whole process."""
    told = warnings._warn_unawaited_coroutine  # type: ignore[attr-defined]  # what the interpreter calls
    if getattr(told, "__module__", None) != __name__:
        warnings._warn_unawaited_coroutine = _hook(told)  # type: ignore[attr-defined]  # as above


def _hook(told: Callable[[Any], None]) -> Callable[[Any], None]:
    # What it needs is its own: at the end of the process modules lose theirs.
    calls, waits, running_loop, run_loop, frame, note, note_wait, warn = (
        _CALLS,
        _WAITS,
        _get_running_loop,
        RunLoop,
        sys._getframe,
        _note,
        _note_wait,
        warnings.warn,
    )

    def notice(coroutine: Any) -> None:
        loop = running_loop()
        if type(loop) is run_loop and coroutine.cr_code in calls and note(loop, coroutine, frame(1)):
            return
        if type(loop) is run_loop and coroutine.cr_code in waits and note_wait(loop, coroutine, frame(1)):
            return
        if coroutine.cr_origin is not None:
            told(coroutine)
            return
        # As the library does; called from here it would show this line.
        warn(f"coroutine '{coroutine.__qualname__}' was never awaited", RuntimeWarning, stacklevel=2, source=coroutine)

    return notice


def _note(loop: RunLoop, call: Any, dropped_in: FrameType) -> bool:
    """Whether nobody else needs to be told of the call: it was no mistake, or the run will tell."""
    if loop.is_dead:
        # The next owner of the run makes the call again.
        return True
    runtime: Any = loop.runtime
    function = call.cr_frame.f_locals["self"]
    where = _dropped_at(dropped_in)
    if where is None and not loop.has_cancelled:
        where = " or ".join(dict.fromkeys(_stored_at(function, runtime.workflow)))
    if where:
        runtime.note_forgotten(NeverAwaited(f"{function.kind} {function.name!r}", where))
    return bool(where) or loop.has_cancelled


def _note_wait(loop: RunLoop, wait: Any, dropped_in: FrameType) -> bool:
    """The same for what waits or undoes; one that was not dropped on the spot is left to Python's warning."""
    where = None if loop.is_dead else _dropped_at(dropped_in)
    if where:
        runtime: Any = loop.runtime
        runtime.note_forgotten(NeverAwaited(_WAITS[wait.cr_code], where))
    return loop.is_dead or where is not None


def _dropped_at(frame: FrameType) -> str | None:
    """Where the frame has just used up a call, by dropping, judging, comparing or printing it; None if it has not."""
    before = ""
    for each in dis.get_instructions(frame.f_code):
        if each.offset == frame.f_lasti:
            is_call = before in _CALLING and each.opname.startswith(_USING_UP)
            return _shown(frame.f_code, frame.f_lineno) if is_call else None
        if not each.opname.startswith(_BETWEEN):
            before = each.opname
    return None


def _stored_at(function: DecoratedFunction[..., Any], workflow: Workflow[..., Any]) -> Iterator[str]:
    """Where the workflow's code puts calls of the function into a variable."""
    for code in look(workflow).codes:
        for one, following in pairwise(dis.get_instructions(code)):
            if one.opname in _CALLING and following.opname.startswith("STORE_") and _is_call_of(function, code, one):
                yield _shown(code, one.positions.lineno if one.positions else None)


def _is_call_of(function: DecoratedFunction[..., Any], code: CodeType, instruction: dis.Instruction) -> bool:
    """By its text: `charge(...)`, `shop.charge(...)`, `charge.options(...)(...)`."""
    at = instruction.positions
    if at is None or at.lineno is None or at.col_offset is None:
        return False
    line = linecache.getline(code.co_filename, at.lineno).encode()[at.col_offset :].decode(errors="replace")
    return re.match(rf"(\w+\s*\.\s*)*{re.escape(function.__name__)}\b", line) is not None


def _shown(code: CodeType, line: int | None) -> str:
    return f"{code.co_filename}:{line} in {code.co_qualname}"
