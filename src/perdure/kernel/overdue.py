"""How a run ends whose time is over."""

from perdure.kernel.events import RunTimedOut


def timed_out(timeout_ms: int | None) -> RunTimedOut:
    """The run took longer than it was given."""
    return RunTimedOut(f"it took longer than its timeout of {(timeout_ms or 0) / 1000:g} s")
