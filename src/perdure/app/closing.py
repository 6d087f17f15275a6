"""Closing: a Perdure that is being closed gets to the end of it, also when nobody wants to wait for that any more.

In:   the work of closing, and what makes it hurry.
Out:  a closed Perdure; then the cancellation that came meanwhile, if one did.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

# A closing whose caller was cancelled takes no longer than this for each thing it waits for.
PATIENCE_SECONDS = 5.0


async def close_fully(work: Coroutine[Any, Any, None], hurry: Callable[[], None]) -> None:
    """Do the work in a task of its own, where a cancellation of the caller makes it hurry and does not break it off.

    A second cancellation, and a database that does not answer, break off what the work waits for just then.
    """
    task = asyncio.get_running_loop().create_task(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait({task}, timeout=None if cancelled is None else PATIENCE_SECONDS)
            if cancelled is not None:
                task.cancel()
        except asyncio.CancelledError as error:
            if cancelled is None:
                hurry()
            else:
                task.cancel()
            cancelled = error
    if cancelled is not None:
        task.cancelled() or task.exception()
        raise cancelled.with_traceback(None)
    task.result()
