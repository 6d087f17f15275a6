"""Transactional activities on tables in memory: user code in a transaction that others overlap with, as on Postgres.

In:   the code of an activity, which gets a table of its user's.
Out:  what became of it: its rows and what the engine writes with them are there together, or nothing is.
"""

import asyncio
from collections.abc import Callable
from typing import TypeAlias

from perdure.stores.answers import Committed, Fenced, Outcome, Undone
from perdure.stores.operations import Batch
from perdure.stores.port import TransactionalCode
from perdure.stores.rules.batch import apply_groups, is_torn
from tests.simulation.memory.executor import answer, holds_epoch
from tests.simulation.memory.tables import Tables
from tests.simulation.memory.transaction import Transaction
from tests.simulation.memory.view import Steps

Told: TypeAlias = Callable[[Outcome | Undone], None]


class CodeTransaction(Transaction):
    """Open from before the first row of the user's; its steps are what is written beside these, and the commit."""

    def __init__(self, tables: Tables, url: str) -> None:
        super().__init__(tables, Batch([], None, 0), url)

    def record(self, batch: Batch) -> None:
        """Write this with the rows of the user's."""
        self.batch = batch
        self._statements = self._write()

    def _write(self) -> Steps[Outcome | Undone]:
        groups = self.batch.groups
        if not (yield from holds_epoch(self, self.batch)):
            return Fenced()
        try:
            answers = yield from answer(self, apply_groups(groups))
        except Exception as error:  # noqa: BLE001 - what was to be written: nothing is
            return Undone(error)
        if is_torn(groups, answers):
            return Undone(RuntimeError(f"the outcome was refused: {answers}"))
        return Committed(answers)


class UserTable:
    """What the code of an activity gets: the rows of its user's, as its transaction sees them."""

    def __init__(self, transaction: CodeTransaction) -> None:
        self._transaction = transaction

    def insert(self, key: str, number: int) -> None:
        """One row more; nothing forbids the same one twice."""
        tables = self._transaction.tables
        tables.last_entry += 1
        self._transaction.entries.put(tables.last_entry, (key, number))


class MemoryActivityTransactions:
    """Runs code beside everything else; `submit` lets somebody take the steps of its transactions."""

    is_alone = False

    def __init__(self, tables: Tables, url: str, submit: Callable[[CodeTransaction, Told], None]) -> None:
        self._tables = tables
        self._url = url
        self.submit = submit

    def connection_type(self, *, is_async: bool) -> str | None:
        return "UserTable"

    def transact(self, code: TransactionalCode, worker_id: str, epoch: int, done: Told) -> None:
        asyncio.get_running_loop().create_task(self._transact(code, worker_id, epoch, done))

    async def _transact(self, code: TransactionalCode, worker_id: str, epoch: int, done: Told) -> None:
        transaction = CodeTransaction(self._tables, self._url)
        try:
            value = code.run(UserTable(transaction))
            value = await value if code.is_async else value
        except BaseException as error:  # noqa: BLE001 - whatever user code raises is its outcome
            transaction.abandon()
            done(Undone(error))
            return
        groups = None
        try:
            await code.ready()
            if code.accept(value):
                await code.settled()
                groups = code.groups()
        finally:
            if groups is None:
                transaction.abandon()
        if groups is None:
            done(Undone(code.unwanted()))
        else:
            transaction.record(Batch(groups, worker_id, epoch))
            self.submit(transaction, done)
