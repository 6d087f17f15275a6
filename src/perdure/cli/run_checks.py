"""What is checked of the runs in any database: whether somebody takes them, whether all fits together, their clock.

In:   what the tables hold.
Out:  findings.
"""

from collections.abc import Sequence
from datetime import timedelta

from perdure.cli.findings import Finding, ok, warning
from perdure.cli.hints import hint
from perdure.cli.output import counted, span
from perdure.stores.health import Contents
from perdure.stores.sqlite_audit import Violation

# A run that is due is taken within moments; after so many milliseconds nobody seems to care.
NEGLECTED_MS = 5_000
SET_BACK_MS = 1_000
# An audit takes about a tenth of a second for each megabyte; beyond so many bytes nobody wants to wait for that.
LARGEST_AUDITED = 16 * 2**20


def check_runs(health: Contents, now: int, *, is_full: bool = False) -> Finding:
    """Whether the runs that could go on do."""
    found = f"{counted(health.open_runs, 'run')} open" if health.open_runs else "none open"
    if health.due_runs and health.due_since is not None and now - health.due_since > NEGLECTED_MS:
        late = span(timedelta(milliseconds=now - health.due_since))
        due = f"{found}; {counted(health.due_runs, 'run')} could go on, since {late} at most, but "
        if is_full:
            return warning("runs", f"{due}the disk is full", "make room; workers take them then")
        return warning(
            "runs",
            f"{due}no worker takes them",
            f"start one that has the code: `{hint('worker', 'MODULE')}`",
        )
    if health.held_runs:
        held = hint("list", "--status", "held")
        return warning("runs", f"{found}; {health.held_runs} held", f"`{held}` shows them, `perdure show` why")
    return ok("runs", found)


def told_audit(found: Sequence[Violation]) -> Finding:
    """What an audit has found, in short."""
    if not found:
        return ok("audit", "everything fits together")
    runs = {violation.run_id for violation in found} - {None}
    told = counted(len(found), "finding") + (f" in {counted(len(runs), 'run')}" if runs else "")
    return warning("audit", told, f"`{hint('audit')}` tells {'it' if len(found) == 1 else 'them'}, and what to do")


def check_clock(health: Contents, now: int) -> Finding:
    """Whether the time is later than what was written last."""
    ahead = health.last_written_at - now
    if ahead > SET_BACK_MS:
        return warning(
            "clock",
            f"the database was last written {span(timedelta(milliseconds=ahead))} in the future",
            "the clock was set back; let the machine keep its time (NTP)",
        )
    return ok("clock", "not behind the database")
