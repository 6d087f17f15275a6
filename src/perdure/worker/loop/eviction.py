"""Unwinding: how code of an evicted run is brought to its end.

In:   a coroutine that is suspended somewhere.
Out:  one that is finished; or kept for ever, if it will not finish.
Left to the garbage collector its finally blocks would run inside another run. Knows
nothing of loops; whoever unwinds sets the one the code is to find.
"""

import logging
from typing import Any

log = logging.getLogger("perdure.worker")

# After so many refused calls of a dying run its code is left alone.
MOST_REFUSALS = 100

# Code that refuses to end is kept for ever: its finalizer would run inside another run.
graveyard: list[object] = []


class Evicted(BaseException):
    """The run was taken out of memory; raised into its code so that nothing of it is left behind."""


def bury_unless_unwound(code: object, coro: Any) -> None:
    """Unwind the coroutine; if it will not end, keep the code it belongs to."""
    if not _unwind(coro):
        graveyard.append(code)
        log.error("workflow code would not end when its run was evicted: %r", code)


def _unwind(coro: Any) -> bool:
    """Throw Evicted into a coroutine until it is finished; False when it will not finish."""
    for _ in range(MOST_REFUSALS):
        try:
            coro.throw(Evicted())
        except (Evicted, StopIteration, StopAsyncIteration):
            return True
        except BaseException:  # noqa: BLE001 - a dying run may raise what it likes, nobody is there to hear it
            return True
    return False
