"""How SQLite applies a batch: all groups together, or, when one of them spoils that, each for itself.

In:   a connection inside a transaction, and groups of operations.
Out:  for each group that is not plainly applied, its answer.
"""

import sqlite3
from collections.abc import Sequence

from perdure.stores.answers import Answer, Broken
from perdure.stores.operations import ClaimRuns, Operation
from perdure.stores.rows import Garbled
from perdure.stores.rules.batch import apply_groups
from perdure.stores.rules.sorting import Answers, is_torn, touched_runs
from perdure.stores.sqlite.executor import answer
from perdure.stores.sqlite.reads import is_about_file
from perdure.stores.sqlite.unreadable import ask, hold_unclaimable


def apply_together(db: sqlite3.Connection, groups: Sequence[Sequence[Operation]]) -> Answers:
    """Apply all groups at once."""
    return answer(db, apply_groups(groups))


def apply_singly(db: sqlite3.Connection, groups: Sequence[Sequence[Operation]]) -> Answers:
    """Each group in a savepoint of its own; one that the database refuses is Broken, the others go on."""
    answers: Answers = {}
    broken: set[str] = set()
    for index, group in enumerate(groups):
        touched = touched_runs(group)
        if touched & broken:
            answers[index] = Broken("an earlier change of the same run was refused")
            continue
        db.execute("savepoint one_group")
        found: Answer | None
        try:
            found = _apply_one(db, group)
            if is_torn([group], {0: found} if found else {}):
                db.execute("rollback to one_group")
        except Exception as error:
            if is_about_file(error):
                raise
            # Whatever it was, it is this group's and not its neighbours'.
            db.execute("rollback to one_group")
            found = Broken(str(error) if isinstance(error, Garbled) else f"{type(error).__name__}: {error}")
            broken |= touched
        db.execute("release one_group")
        if found is not None:
            answers[index] = found
    return answers


def _apply_one(db: sqlite3.Connection, group: Sequence[Operation]) -> Answer | None:
    """Apply one group; a claim holds the runs that it cannot name, or put in order, and takes the others."""

    def once_more(db: sqlite3.Connection) -> Answer | None:
        if isinstance(claim := group[0], ClaimRuns):
            hold_unclaimable(db, claim.now)
        return apply_together(db, [group]).get(0)

    return ask(db, lambda db: apply_together(db, [group]).get(0), once_more)
