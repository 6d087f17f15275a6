"""How SQLite applies a batch: all groups together, or, when one of them spoils that, each for itself.

In:   a connection inside a transaction, and groups of operations.
Out:  for each group that is not plainly applied, its answer.
"""

import sqlite3
from functools import partial

from perdure.stores.answers import Answers
from perdure.stores.operations import ClaimRuns
from perdure.stores.rows import Garbled
from perdure.stores.rules import batch as rules
from perdure.stores.rules.batch import Groups
from perdure.stores.rules.questions import Steps
from perdure.stores.sqlite.executor import answer
from perdure.stores.sqlite.unreadable import bytes_for_garbage, hold_unclaimable, is_undecodable


def apply_together(db: sqlite3.Connection, groups: Groups, *, is_heard: bool = True) -> Answers:
    """Apply all groups at once; whether anybody listens may be known from the fence."""
    return answer(db, rules.apply_groups(groups, is_heard=is_heard))


def apply_singly(db: sqlite3.Connection, groups: Groups) -> Answers:
    """Apply each group for itself; one that the database refuses is Broken, the others go on."""
    return answer(db, rules.apply_singly(groups, partial(_apply_patiently, db)))


def _apply_patiently(db: sqlite3.Connection, groups: Groups) -> Steps[Answers]:
    """Apply one group; a claim holds the runs that it cannot name, or put in order, and takes the others."""
    try:
        return (yield from rules.apply_groups(groups))
    except (Garbled, sqlite3.OperationalError) as error:
        if not isinstance(error, Garbled) and not is_undecodable(error):
            raise
    with bytes_for_garbage(db):
        if isinstance(claim := groups[0][0], ClaimRuns):
            hold_unclaimable(db, claim.now)
        return (yield from rules.apply_groups(groups))
