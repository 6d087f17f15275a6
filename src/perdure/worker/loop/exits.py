"""Exits: for whom a SystemExit or KeyboardInterrupt is meant.

Code that raises one ends itself; the worker and its other runs live on. One that a signal handler raises strikes
whatever code happens to run at that moment, and is meant for the process: that code must not be blamed for it.
"""

import dis
import inspect
import itertools
import signal
import threading
from collections.abc import Iterator
from types import FrameType, TracebackType

EXITS = (SystemExit, KeyboardInterrupt)

_RAISE = dis.opmap["RAISE_VARARGS"]


def is_for_the_process(error: BaseException) -> bool:
    """Whether a signal has raised this, and not the code it came out of."""
    if not isinstance(error, EXITS) or error.__traceback__ is None:
        return False
    frames = list(_frames(error.__traceback__))
    return any(_is_handler(frame) for frame, _ in frames) or _is_ctrl_c(error, *frames[-1])


def _frames(traceback: TracebackType | None) -> Iterator[tuple[FrameType, int]]:
    while traceback is not None:
        yield traceback.tb_frame, traceback.tb_lasti
        traceback = traceback.tb_next


def _is_handler(frame: FrameType) -> bool:
    """Whether a signal called this: with its number and the frame it struck, whatever is installed by now."""
    return any(
        isinstance(number, int) and isinstance(struck, FrameType)
        for number, struck in itertools.pairwise(_arguments(frame))
    )


def _arguments(frame: FrameType) -> Iterator[object]:
    code = frame.f_code
    for name in code.co_varnames[: code.co_argcount]:
        yield frame.f_locals.get(name)
    if code.co_flags & inspect.CO_VARARGS:
        yield from frame.f_locals.get(code.co_varnames[code.co_argcount + code.co_kwonlyargcount], ())


def _is_ctrl_c(error: BaseException, innermost: FrameType, at: int) -> bool:
    """Python's own handler leaves no frame behind; but where it struck, the code raises nothing."""
    return (
        isinstance(error, KeyboardInterrupt)
        and threading.current_thread() is threading.main_thread()
        and signal.getsignal(signal.SIGINT) is signal.default_int_handler
        and innermost.f_code.co_code[at] != _RAISE
    )
