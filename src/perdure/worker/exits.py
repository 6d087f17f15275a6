"""Exits: for whom a SystemExit or KeyboardInterrupt is meant.

Code that raises one ends itself; the worker and its other runs live on. One that a signal handler raises strikes
whatever code happens to run at that moment, and is meant for the process: that code must not be blamed for it.
"""

import dis
import functools
import signal
import threading
from collections.abc import Iterator
from types import CodeType, FrameType, TracebackType
from typing import Any

EXITS = (SystemExit, KeyboardInterrupt)

_RAISE = dis.opmap["RAISE_VARARGS"]


def is_for_the_process(error: BaseException) -> bool:
    """Whether a signal has raised this, and not the code it came out of."""
    if not isinstance(error, EXITS) or error.__traceback__ is None:
        return False
    frames = list(_frames(error.__traceback__))
    handlers = _handlers()
    return any(frame.f_code in handlers for frame, _ in frames) or _is_ctrl_c(error, *frames[-1])


def _frames(traceback: TracebackType | None) -> Iterator[tuple[FrameType, int]]:
    while traceback is not None:
        yield traceback.tb_frame, traceback.tb_lasti
        traceback = traceback.tb_next


def _handlers() -> set[CodeType]:
    """The code of the signal handlers there are."""
    found = {_code_of(signal.getsignal(number)) for number in signal.valid_signals()}
    return {code for code in found if code is not None}


def _code_of(handler: Any) -> CodeType | None:
    while isinstance(handler, functools.partial):
        handler = handler.func
    if not hasattr(handler, "__code__") and callable(handler):
        handler = type(handler).__call__ if hasattr(type(handler).__call__, "__code__") else handler
    return getattr(handler, "__code__", None)


def _is_ctrl_c(error: BaseException, innermost: FrameType, at: int) -> bool:
    """Python's own handler leaves no frame behind; but where it struck, the code raises nothing."""
    return (
        isinstance(error, KeyboardInterrupt)
        and threading.current_thread() is threading.main_thread()
        and signal.getsignal(signal.SIGINT) is signal.default_int_handler
        and innermost.f_code.co_code[at] != _RAISE
    )
