"""How Postgres applies a batch: in one transaction, under the epoch of its worker.

In:   a batch.
Out:  what became of it.

Between the answer to the last statement and the answer to `commit` nobody knows whether the batch is on disk;
before that it certainly is not.
"""

from collections.abc import Sequence

import asyncpg

from perdure.errors import StoreUnavailable
from perdure.stores.answers import Answer, Broken, Committed, Failed, Fenced, Outcome, Unknown
from perdure.stores.operations import Batch, Operation
from perdure.stores.postgres_address import Address
from perdure.stores.postgres_links import LOST, Connection, Link, is_about_database, trouble, unavailable
from perdure.stores.postgres_sql import literal, quoted
from perdure.stores.postgres_steps import answer
from perdure.stores.rows import Garbled
from perdure.stores.writes import Answers, apply_groups, is_torn, touched_runs

# Rows are looked up by their keys, whatever the planner believes of tables it has not counted yet.
PLAN = "set local enable_seqscan = off; set local enable_hashjoin = off; set local enable_mergejoin = off"
BEGIN = f"begin isolation level read committed; {PLAN}"
# A circle of waiting transactions, or too many changes at once: the same works when it is done again.
AGAIN = (asyncpg.DeadlockDetectedError, asyncpg.SerializationError)
MOST_TIMES = 5


class Writes:
    """One connection that writes batches, one at a time."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._schema = address.schema
        self._link = Link(address, "writes")

    async def write(self, batch: Batch) -> Outcome:
        """Write a batch."""
        for _ in range(MOST_TIMES):
            try:
                return await self._write(batch)
            except AGAIN as error:
                last = error
        return Failed(unavailable(self._address.shown, last))

    async def close(self) -> None:
        await self._link.close()

    def drop(self) -> None:
        self._link.drop()

    async def _write(self, batch: Batch) -> Outcome:
        try:
            connection = await self._begun(batch)
            if connection is None:
                return Fenced()
            answers = await self._applied(connection, batch)
            if answers is None:
                return Fenced()
        except AGAIN:
            await self._roll_back()
            raise
        except Exception as error:
            if not is_about_database(error):
                await self._roll_back()
                raise
            self._link.drop()
            return Failed(unavailable(self._address.shown, error))
        return await self._commit(connection, Committed(answers))

    async def _begun(self, batch: Batch) -> Connection | None:
        """A connection inside a transaction; None when the worker's epoch is not the batch's any more."""
        opening = BEGIN if batch.worker_id is None else f"{BEGIN}; {self._fence(batch.worker_id, batch.epoch)}"
        connection = await self._link.connection()
        try:
            said = await connection.execute(opening)
        except LOST:
            # It may have been lost while nobody needed it.
            self._link.drop()
            connection = await self._link.connection()
            said = await connection.execute(opening)
        if said == "SELECT 0":
            await self._roll_back()
            return None
        return connection

    def _fence(self, worker_id: str, epoch: int) -> str:
        worker = f"{quoted(self._schema)}.workers where worker_id = {literal(worker_id)}"
        return f"select 1 from {worker} and epoch = {epoch:d} for key share"  # noqa: S608 - quoted, and a number

    async def _applied(self, connection: Connection, batch: Batch) -> Answers | None:
        """All groups together, or, when one of them spoils that, each for itself; None when fenced meanwhile."""
        try:
            answers = await answer(connection, self._schema, apply_groups(batch.groups))
            if not is_torn(batch.groups, answers):
                return answers
        except Exception as error:
            if is_about_database(error):
                raise
        await self._roll_back()
        # This is another transaction: what held in the first one may not hold in it.
        if await self._begun(batch) is None:
            return None
        return await self._apply_singly(connection, batch.groups)

    async def _apply_singly(self, connection: Connection, groups: Sequence[Sequence[Operation]]) -> Answers:
        """Each group in a savepoint of its own; one that the database refuses is Broken, the others go on."""
        answers: Answers = {}
        broken: set[str] = set()
        for index, group in enumerate(groups):
            touched = touched_runs(group)
            if touched & broken:
                answers[index] = Broken("an earlier change of the same run was refused")
                continue
            found = await self._apply_one(connection, group)
            if isinstance(found, Broken):
                broken |= touched
            if found is not None:
                answers[index] = found
        return answers

    async def _apply_one(self, connection: Connection, group: Sequence[Operation]) -> Answer | None:
        await connection.execute("savepoint one_group")
        found: Answer | None
        try:
            found = (await answer(connection, self._schema, apply_groups([group]))).get(0)
            is_void = found is not None and is_torn([group], {0: found})
        except Exception as error:
            if is_about_database(error):
                raise
            # Whatever it was, it is this group's and not its neighbours'.
            found = Broken(str(error) if isinstance(error, Garbled) else f"{type(error).__name__}: {trouble(error)}")
            is_void = True
        await connection.execute("rollback to one_group" if is_void else "release one_group")
        return found

    async def _commit(self, connection: Connection, committed: Committed) -> Outcome:
        try:
            said = await connection.execute("commit")
        except Exception as error:  # noqa: BLE001 - whatever it was, nobody knows what became of the batch
            self._link.drop()
            text = f"{trouble(error)}; whether the change is on disk is not known"
            return Unknown(StoreUnavailable(self._address.shown, text))
        if said != "COMMIT":
            return Failed(StoreUnavailable(self._address.shown, "the server undid the change; try again"))
        return committed

    async def _roll_back(self) -> None:
        try:
            await (await self._link.connection()).execute("rollback")
        except Exception:  # noqa: BLE001 - a connection that cannot even do this is not used any more
            self._link.drop()
