"""What is checked of the runs in any database: whether a worker takes them, whether all fits together, their clock.

In:   what the tables hold.
Out:  findings.
"""

from collections.abc import Iterator, Sequence
from datetime import timedelta

from perdure.diagnostics.findings import Finding, Hint, command, ok, trouble, warning
from perdure.stores.audit import Violation
from perdure.stores.health import Contents, Due, WorkerSeen
from perdure.views.words import counted, span

DEFAULT_NAMESPACE = "main"
DEFAULT_QUEUE = "default"
# A run that is due is taken within moments; after so many milliseconds nobody seems to care.
NEGLECTED_MS = 5_000
# After so many without any worker an operator has to be woken: a deploy takes less.
LEFT_ALONE_MS = 60_000
# A worker whose lease is over for so long, which lasts as long by itself, has been gone for a minute.
GONE_MS = 30_000
# Clocks of machines that keep their time differ by less; beyond the second one has been wrong.
SET_BACK_MS, FAR_BACK_MS = 1_000, 60_000
# So many kinds of runs, and queues, are named.
SHOWN = 3
# An audit takes about a tenth of a second for each megabyte; beyond so many bytes nobody wants to wait for that.
LARGEST_AUDITED = 16 * 2**20


def check_runs(
    health: Contents, now: int, *, hint: Hint = command, is_full: bool = False, is_service: bool = False
) -> Finding:
    """Whether the runs that could go on do.

    What is held waits for an operator: that is trouble. Where a service works them it is as well when nobody is
    alive; a file may rest until its program is started again.
    """
    found = f"{counted(health.open_runs, 'run')} open" if health.open_runs else "none open"
    remedies = []
    if health.held_runs:
        found += f"; {health.held_runs} held"
        remedies.append(f"`{hint('list', '--status', 'held')}` shows what is held, `perdure show` why")
    if health.due_runs and health.due_since is not None and now - health.due_since > NEGLECTED_MS:
        late = span(timedelta(milliseconds=now - health.due_since))
        due = f"{found}; {counted(health.due_runs, 'run')} could go on, since {late} at most, but "
        found = f"{due}{'the disk is full' if is_full else f'no worker takes them{_kinds(health.due)}'}"
        remedies.insert(0, "make room; workers take them then" if is_full else _help(health.due, hint))
    if not remedies:
        return ok("runs", found)
    is_trouble = bool(health.held_runs) or (is_service and _are_left_alone(health, now))
    return (trouble if is_trouble else warning)("runs", found, "; ".join(remedies))


def check_duties(health: Contents, now: int) -> Iterator[Finding]:
    """What one worker does for all, and how that went; nothing where there is no such thing."""
    if not health.duties:
        return
    told, troubles = [], []
    for duty in health.duties:
        ago = span(timedelta(milliseconds=max(now - duty.last_ok_at, 0)))
        who = f"worker {duty.holder}" if duty.is_held else "nobody; the next worker that is needed takes it"
        told.append(f"{duty.name} in {duty.namespace}: {who}, went well {ago} ago")
        if duty.last_error is not None:
            troubles.append(f"{duty.name} in {duty.namespace} failed: {duty.last_error}")
    if troubles:
        yield warning("duties", "; ".join([*told, *troubles]), "it is tried again; the log of that worker says more")
    else:
        yield ok("duties", "; ".join(told))


def check_stuck(health: Contents, now: int, hint: Hint = command) -> Finding:
    """Whether runs should move and have not for a minute: nobody alive has their code, or their owner is gone."""
    alive = [each for each in health.workers if each.is_alive is not False and each.lease_until >= now]
    unserved = [each for each in health.due if each.late and not any(_serves(worker, each) for worker in alive)]
    gone = [each for each in health.workers if each not in alive and each.runs and now - each.lease_until > GONE_MS]
    count = sum(each.late for each in unserved) + sum(each.runs for each in gone)
    if not count:
        return ok("stuck", "no run is stuck")
    told = [
        f"{each.late:,} of {each.workflow} on the queue {each.queue}, which nobody has code for" for each in unserved
    ]
    told += [f"{each.runs:,} of process {each.pid} on {each.host}, which is gone or hangs" for each in gone]
    more = [f"{len(told) - SHOWN} kinds more"] if len(told) > SHOWN else []
    found = f"{counted(count, 'run')} stuck: {'; '.join([*told[:SHOWN], *more])}"
    return warning("stuck", found, f"`{hint('list', '--stuck')}` shows them, `perdure explain` why")


def _serves(worker: WorkerSeen, due: Due) -> bool:
    has_code = worker.workflows is None or due.workflow in worker.workflows
    return has_code and worker.namespace == due.namespace and due.queue in worker.queues


def _are_left_alone(health: Contents, now: int) -> bool:
    """Whether runs could go on for long, and no worker is there at all."""
    is_anybody_alive = any(each.is_alive is not False and each.lease_until >= now for each in health.workers)
    is_late = bool(health.due_runs) and health.due_since is not None and now - health.due_since > LEFT_ALONE_MS
    return is_late and not is_anybody_alive


def _kinds(due: Sequence[Due]) -> str:
    """Which runs those are, the most first."""
    told = [f"{each.runs:,} of {each.workflow} on the queue {each.queue}" for each in due[:SHOWN]]
    if len(due) > SHOWN:
        told.append(f"{sum(each.runs for each in due[SHOWN:]):,} more")
    return f" ({', '.join(told)})" if told else ""


def _help(due: Sequence[Due], hint: Hint) -> str:
    """The command that takes them, or the most of them."""
    namespace = due[0].namespace if due else DEFAULT_NAMESPACE
    queues = list(dict.fromkeys(each.queue for each in due if each.namespace == namespace))[:SHOWN]
    words = [word for name in queues for word in ("--queue", name)] if queues != [DEFAULT_QUEUE] else []
    if namespace != DEFAULT_NAMESPACE:
        words += ["--namespace", namespace]
    return f"start one that has the code: `{hint('worker', 'MODULE', *words)}`"


def queues_of(worker: WorkerSeen) -> str:
    """The queues a worker works, in a few words."""
    shown = [*worker.queues[:SHOWN], *([f"{len(worker.queues) - SHOWN} more"] if len(worker.queues) > SHOWN else [])]
    return f"{'queue' if len(worker.queues) == 1 else 'queues'} {' and '.join(shown)}"


def told_audit(found: Sequence[Violation], hint: Hint) -> Finding:
    """What an audit has found, in short."""
    if not found:
        return ok("audit", "everything fits together")
    runs = {violation.run_id for violation in found} - {None}
    told = counted(len(found), "finding") + (f" in {counted(len(runs), 'run')}" if runs else "")
    return warning("audit", told, f"`{hint('audit')}` tells {'it' if len(found) == 1 else 'them'}, and what to do")


def check_clock(health: Contents, now: int) -> Finding:
    """Whether the time is later than what was written last."""
    ahead = health.last_written_at - now
    if ahead <= SET_BACK_MS:
        return ok("clock", "not behind the database")
    found = f"the database was last written {span(timedelta(milliseconds=ahead))} in the future"
    if health.written_ahead:
        others = health.written_ahead_runs - len(health.written_ahead)
        ids = [*map(repr, health.written_ahead), *([f"{others:,} more"] if others else [])]
        found += f"; of the open runs {', '.join(ids)}"
    return (trouble if ahead > FAR_BACK_MS else warning)(
        "clock",
        found,
        "the clock was set back, or another one was ahead: let every machine keep its time (NTP); "
        "runs go on, but timers and delays that were set by a wrong clock come when it said",
    )
