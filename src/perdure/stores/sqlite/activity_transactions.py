"""Transactional activities on SQLite: user code alone in a transaction of the engine's own connection.

In:   the code of an activity.
Out:  what became of it: its rows and what the engine writes with them are on disk together, or nothing is.

It holds the write lock of the file from before its first statement until after the commit, so that nobody else,
in this process or another one, writes meanwhile. In a savepoint of a shared batch an `insert or rollback` of the user's
would undo the rows of all the others.
"""

import logging
import sqlite3
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any, TypeAlias

from perdure.clock import elapsed
from perdure.stores.answers import Committed, Failed, Outcome, Undone
from perdure.stores.operations import Fence, Operation
from perdure.stores.port import TransactionalCode
from perdure.stores.rules.batch import is_torn
from perdure.stores.sqlite.connection import SqliteFile
from perdure.stores.sqlite.lent_connection import ROLLED_BACK, LentConnection
from perdure.stores.sqlite.transactions import Transactions
from perdure.stores.sqlite.unreadable import is_about_file
from perdure.stores.sqlite.writer import Writer
from perdure.stores.sqlite.writes import apply_together

log = logging.getLogger("perdure.store")

# What takes longer is told: everybody who writes to the file waits meanwhile.
LONG_SECONDS = 0.1

Groups: TypeAlias = Sequence[Sequence[Operation]] | None
# Calls a function on the loop's thread, and gives what it returns.
OnLoop: TypeAlias = Callable[[Callable[[], Groups]], Groups]


class SqliteActivityTransactions:
    """Runs code in the thread that writes; without one, in a thread of its own while everything waits for it."""

    is_alone = True

    def __init__(self, file: SqliteFile) -> None:
        self._file = file
        self.transactions: Transactions
        self.writer: Writer | None = None

    def connection_type(self, *, is_async: bool) -> str | None:
        return None if is_async else "sqlite3.Connection"

    def transact(
        self, code: TransactionalCode, worker_id: str, epoch: int, done: Callable[[Outcome | Undone], None]
    ) -> None:
        fence = Fence(worker_id, epoch)
        if self.writer is not None:
            self.writer.do(partial(transact, self.transactions, code, fence, self.writer.on_loop), done)
            return
        with self._file.locked():
            outcome = transact(self.transactions, InThread(code), fence, lambda ask: ask())
        done(outcome)


class InThread:
    """Code that runs in a thread of its own while the caller waits: it must not find the caller's loop running."""

    is_async = False

    def __init__(self, code: TransactionalCode) -> None:
        self.activity = code.activity
        self.unwanted = code.unwanted
        self.accept = code.accept
        self.ready = code.ready
        self.settled = code.settled
        self.groups = code.groups
        self._run = code.run

    def run(self, connection: object) -> Any:
        told: Future[Any] = Future()
        threading.Thread(target=self._tell, args=(told, connection), name="perdure-activity", daemon=True).start()
        return told.result()

    def _tell(self, told: "Future[Any]", connection: object) -> None:
        try:
            told.set_result(self._run(connection))
        except BaseException as error:  # noqa: BLE001 - raised where it is waited for
            told.set_exception(error)


def transact(transactions: Transactions, code: TransactionalCode, fence: Fence, on_loop: OnLoop) -> Outcome | Undone:
    """Run the code and commit; the write lock is ours."""
    began = elapsed()
    try:
        return _transact(transactions, code, fence, on_loop)
    finally:
        if (took := elapsed() - began) > LONG_SECONDS:
            log.warning(
                "the transactional activity %r held up every write to the file for %d ms; do in it only what has to be "
                "committed together",
                code.activity,
                round(took * 1000),
                extra={"event": "long_transaction", "activity": code.activity},
            )


def _transact(transactions: Transactions, code: TransactionalCode, fence: Fence, on_loop: OnLoop) -> Outcome | Undone:
    begun = transactions.begin(fence)
    if begun is not None:
        return begun
    lent = LentConnection(transactions.db, code)
    try:
        value = code.run(lent)
    except BaseException as error:  # noqa: BLE001 - whatever user code raises is its outcome
        lent.take_back()
        transactions.roll_back()
        return Undone(lent.trouble or error)
    lent.take_back()
    if not transactions.db.in_transaction:
        lent.note(ROLLED_BACK)
    if (why := lent.trouble or code.unwanted()) is not None:
        transactions.roll_back()
        return Undone(why)
    try:
        groups = on_loop(lambda: code.groups() if code.accept(value) else None)
    except Exception as error:  # noqa: BLE001 - nothing of ours may end the thread that writes
        transactions.roll_back()
        return Undone(error)
    return _write(transactions, groups)


def _write(transactions: Transactions, groups: Groups) -> Outcome | Undone:
    if groups is None:
        transactions.roll_back()
        return Undone()
    try:
        answers = apply_together(transactions.db, groups)
    except Exception as error:  # noqa: BLE001 - the file is to blame, or one group, which the next batch finds
        transactions.roll_back()
        return Failed(transactions.unavailable(error)) if is_about_file(error) else Undone(error)
    if answers and is_torn(groups, answers):
        transactions.roll_back()
        return Undone(sqlite3.IntegrityError(f"the outcome was refused: {answers}"))
    return transactions.finish(Committed(answers))
