"""A turn: the database for one transactional activity alone, in its place in the committer's queue.

In:   the code of an activity.
Out:  what became of it, told once.

Only for stores where nobody can write beside such a transaction. Other stores run it on a connection of its own.
"""

from collections.abc import Callable
from typing import TypeAlias

from perdure.engine.committer import AloneGroup, Settlement
from perdure.stores.answers import Outcome, Undone
from perdure.stores.port import StoreTransactions, TransactionalCode

Ended: TypeAlias = Settlement | Undone


class Turn(AloneGroup):
    """What has the database for itself when its turn has come; `told` gets what came of it."""

    __slots__ = ("_code", "_store", "_told")

    operations = ()

    def __init__(self, store: StoreTransactions, code: TransactionalCode, told: Callable[[Ended], None]) -> None:
        self._store = store
        self._code = code
        self._told = told

    def take(self, worker_id: str | None, epoch: int, done: Callable[[Outcome | Undone], None]) -> None:
        assert worker_id is not None
        self._store.transact(self._code, worker_id, epoch, done)

    def settle(self, answer: Settlement) -> None:
        self._told(answer)

    def undone(self, undone: Undone) -> None:
        self._told(undone)
