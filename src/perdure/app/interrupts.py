"""Interrupts: what a person sees who stops a program with Ctrl-C while it waits for us.

In:   the error that leaves the `async with` block of a Perdure.
Out:  the same error; a cancellation ends at the line of the caller's that it met.
"""

from asyncio import CancelledError
from pathlib import Path

_OURS = f"{Path(__file__).parents[1]}/"


def end_at_the_callers_line(error: BaseException | None) -> None:
    """Cut our own frames from a cancellation: `asyncio.run` shows it after Ctrl-C, and they tell nobody anything."""
    trace = error.__traceback__ if isinstance(error, CancelledError) else None
    while trace is not None and trace.tb_next is not None:
        if trace.tb_next.tb_frame.f_code.co_filename.startswith(_OURS):
            trace.tb_next = None
        trace = trace.tb_next
