"""Changes of runs: logged in the transaction that makes them, as long as somebody listens.

In:   the runs whose looks a batch has changed.
Out:  rows in the log; nothing but one look when nobody listens.

`listeners` has a row for each thing that is written only while somebody wants it. It is looked at once in a batch,
and after the first change of the transaction: whoever begins to listen meanwhile finds the transaction still open,
and looks once more at everything when it has ended.
"""

from collections.abc import Sequence
from typing import Any

from perdure.stores.answers import Answer, Applied
from perdure.stores.operations import ForgetChanges, Listen
from perdure.stores.rules.questions import ManyRows, Query, Steps

# The listener of those who follow runs as they change.
CHANGES = "changes"
# In the log, what is no change of a run.
NO_RUN = ""
# What an operation calls the time it is of; a few have none.
_TIMES = ("at", "now", "created_at", "closed_at")


def log_shown(operations: Sequence[Any], listeners: Sequence[Any]) -> Steps[None]:
    """Log the runs that these operations name, for those of the listeners who want it."""
    if operations:
        yield from _log([operation.run_id for operation in operations], moment_of(operations), listeners)


def log_changes(run_ids: Sequence[str | bytes], now: int) -> Steps[None]:
    """Log runs that were changed by an operation which does not name them; an id may be spoilt, and comes as bytes."""
    if run_ids and (listeners := (yield Query("listeners", {})).rows):
        found = (run_id if isinstance(run_id, str) else run_id.decode(errors="replace") for run_id in run_ids)
        yield from _log([*found], now, listeners)


def _log(run_ids: Sequence[str], now: int, listeners: Sequence[Any]) -> Steps[None]:
    if CHANGES in wanted(listeners, now):
        yield ManyRows("log_changes", [(run_id,) for run_id in dict.fromkeys(run_ids)])


def wanted(listeners: Sequence[Any], now: int) -> set[str]:
    """What is still listened for."""
    return {name for name, until in listeners if until > now}


def moment_of(operations: Sequence[Any]) -> int:
    """The time that operations are of; 0 when none of them says one, and then nothing has lapsed."""
    found = (getattr(operation, name, None) for operation in operations for name in _TIMES)
    return next((at for at in found if at is not None), 0)


def listen(wish: Listen) -> Steps[None]:
    """Have something logged; after a time in which nobody wanted it no position is the same as before that."""
    listeners = (yield Query("listeners", {})).rows
    yield Query("listen", wish._asdict())
    if wish.name == CHANGES and CHANGES not in wanted(listeners, wish.now):
        # Where positions are numbers of changes they stand still meanwhile, and old ones would seem to have seen all.
        yield ManyRows("log_changes", [(NO_RUN,)])


def forget_changes(forget: ForgetChanges) -> Steps[Answer]:
    """Delete changes that nobody can ask for any more; answers whether there may be more of them."""
    return Applied((yield Query("forget_changes", forget._asdict())).count >= forget.limit)
