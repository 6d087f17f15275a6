"""How Postgres applies a batch: in one transaction, under the epoch of its worker.

In:   a batch.
Out:  what became of it.

Between the answer to the last statement and the answer to `commit` nobody knows whether the batch is on disk;
before that it certainly is not.
"""

from collections.abc import Sequence

import asyncpg
import msgspec

from perdure.errors import StoreUnavailable
from perdure.stores.answers import APPLIED, Answer, Answers, Busy, Committed, Failed, Fenced, Outcome, Unknown
from perdure.stores.dialects import literal, quoted
from perdure.stores.operations import Batch, Operation
from perdure.stores.postgres.address import Address
from perdure.stores.postgres.connections import BY_KEYS, IDLE_IN_TRANSACTION_MS, Connection, Link
from perdure.stores.postgres.errors import LOST, is_about_database, is_lost, is_of_the_data, trouble, unavailable
from perdure.stores.postgres.executor import answer
from perdure.stores.postgres.scan_floor import Floors
from perdure.stores.postgres.writing.function import write_batch
from perdure.stores.postgres.writing.locked_rows import LOOK_AT_ID_SECONDS, Key, Start, Stuck, keys_of
from perdure.stores.postgres.writing.single_call import Given, Told, answers_to, rows_of
from perdure.stores.postgres.writing.splitting import Apart, halves_of, may_be_of_one, pieces_of
from perdure.stores.rules.batch import apply_groups, apply_singly, is_torn
from perdure.stores.rules.table import News, news_of

PLAN = "; ".join(f"set local {name} = {value}" for name, value in BY_KEYS.items())
# A process that is stopped inside a transaction must not hold its locks for ever.
IDLE = f"set local idle_in_transaction_session_timeout = {IDLE_IN_TRANSACTION_MS}"
BEGIN = f"begin isolation level read committed; {PLAN}; {IDLE}"
# A circle of waiting transactions, or too many changes at once: the same works when it is done again.
AGAIN = (asyncpg.DeadlockDetectedError, asyncpg.SerializationError)
MOST_TIMES = 5
# How long a statement waits for a row that somebody else holds, before it is looked who that is; others of ours hold
# one for no longer than a commit takes. And how long what was held before is tried.
LOCK_MS, SHORT_LOCK_MS = 100, 10
# What our function says when something was refused and all of it undone.
REFUSED = "PD409"


def _being_taken(start: Start) -> str:
    return (
        f"the id {start.workflow_id!r} is being taken by another transaction, which is still open; commit it, or end "
        "it; nothing was changed"
    )


class Writes:
    """One connection that writes batches, one at a time."""

    def __init__(self, address: Address, floors: Floors) -> None:
        self._floors = floors
        self._address = address
        self._schema = address.schema
        self.link = Link(address, "writes")
        self._stuck = Stuck(address.schema)
        # What others may want to know of the batch that was written last.
        self.news = News.NOTHING
        self._at_once = f"select {write_batch(address.schema).name}($1, $2, $3)"

    async def write(self, batch: Batch) -> Outcome:
        """Write a batch; what somebody outside holds is not waited for, but answered Busy."""
        self.news = news_of(batch.groups)
        try:
            return await self._write_free(batch)
        except Exception as error:
            if not is_about_database(error):
                raise
            self.link.drop()
            return Failed(unavailable(self._address.shown, error))

    async def _write_free(self, batch: Batch) -> Outcome:
        """Write what nobody holds, and try the rest for itself."""
        due = await self._stuck.look(await self.link.connection(), batch.groups) if self._stuck else set()
        for _ in range(MOST_TIMES):
            busy = self._stuck.among(batch.groups) if self._stuck else {}
            places = [index for index in range(len(batch.groups)) if index not in busy]
            rest = batch._replace(groups=[batch.groups[index] for index in places]) if busy else batch
            try:
                outcome = await self._write_pieces(rest) if rest.groups else Committed({})
            except AGAIN:
                continue
            except asyncpg.LockNotAvailableError:
                if await self._stuck.find(await self.link.connection(), rest.groups):
                    continue
                outcome = await self._write_halves(rest)
            except asyncpg.PostgresError as error:
                if not may_be_of_one(error):
                    raise
                outcome = await self._write_halves(rest)
            return await self._completed(batch, places, busy, due, outcome)
        return await self._completed(batch, places, busy, due, await self._write_halves(rest))

    async def _completed(
        self, batch: Batch, places: list[int], busy: dict[int, Busy], due: set[Key], outcome: Outcome
    ) -> Outcome:
        """What became of a batch, when this became of those of its groups that nobody holds."""
        if not busy or not isinstance(outcome, Committed):
            return outcome
        told: dict[int, Answer] = {places[index]: found for index, found in outcome.answers.items()}
        return await self._try_alone(batch, told | busy, due)

    async def _write_pieces(self, batch: Batch) -> Outcome:
        pieces = pieces_of(batch.groups)
        if len(pieces) == 1:
            return await self._write(batch)
        return await Apart(batch, self._address.shown, self._write, self._blame).written(pieces)

    async def _write_halves(self, batch: Batch) -> Outcome:
        """Find out which group cannot be written, when something of the batch cannot, and write the others."""

        async def write(part: Batch) -> Outcome:
            return await self._write_in_steps(part, SHORT_LOCK_MS)

        return await Apart(batch, self._address.shown, write, self._blame).written(halves_of(batch.groups))

    def _blame(self, group: Sequence[Operation], error: BaseException) -> Busy:
        """Remember what cannot be written, to be tried for itself until it can."""
        keys = keys_of(group)
        starts = [key for key in keys if isinstance(key, Start)]
        is_taken = bool(starts) and isinstance(error, asyncpg.LockNotAvailableError)
        why = _being_taken(starts[0]) if is_taken else str(unavailable(self._address.shown, error))
        for key in keys:
            if not isinstance(key, str):
                self._stuck.note(key, why, LOOK_AT_ID_SECONDS)
        return Busy(why)

    async def _try_alone(self, batch: Batch, told: dict[int, Answer], due: set[Key]) -> Outcome:
        """The answers to a batch, with those to groups that are due to be tried again, each in its own transaction.

        The others are on disk: when it is not known what became of one of these, it is not known of the batch.
        """
        # What comes later of the same waits for what comes first.
        in_vain: set[Key] = set()
        for index, why in sorted((index, found) for index, found in told.items() if isinstance(found, Busy)):
            keys = keys_of(batch.groups[index]) & due
            if not keys or keys & in_vain:
                continue
            try:
                outcome = await self._write_in_steps(batch._replace(groups=[batch.groups[index]]), SHORT_LOCK_MS)
            except asyncpg.PostgresError as error:
                if not may_be_of_one(error):
                    raise
                in_vain |= keys
                for key in keys:
                    self._stuck.note(key, why.trouble, LOOK_AT_ID_SECONDS)
                continue
            self._stuck.forget(keys)
            if isinstance(outcome, Committed):
                told[index] = outcome.answers.get(0, APPLIED)
            elif not isinstance(outcome, Failed):
                text = "whether all of the change is on disk is not known"
                return Unknown(StoreUnavailable(self._address.shown, text))
        return Committed(told)

    async def close(self) -> None:
        await self.link.close()

    def drop(self) -> None:
        self.link.drop()

    async def _write(self, batch: Batch) -> Outcome:
        hoped = rows_of(batch.groups)
        if hoped is not None:
            outcome = await self._write_at_once(batch, *hoped)
            if outcome is not None:
                return outcome
        return await self._write_in_steps(batch)

    async def _write_at_once(self, batch: Batch, rows: Given, hoped: Answers) -> Outcome | None:
        """In one round trip; None when something of it is refused, or breaks a rule, and nothing was written."""
        try:
            connection = await self.link.connection()
        except Exception as error:
            if not is_about_database(error):
                raise
            return Failed(unavailable(self._address.shown, error))
        given = msgspec.json.encode(rows).decode()
        try:
            told = await connection.fetchval(self._at_once, batch.worker_id, batch.epoch, given)
        except asyncpg.PostgresError as error:
            if may_be_of_one(error):
                raise
            if is_lost(error):
                return self._unknown(error)
            if is_of_the_data(error) or error.sqlstate == REFUSED:
                return None
            return Failed(unavailable(self._address.shown, error))
        except LOST as error:
            return self._unknown(error)
        found = msgspec.json.decode(told, type=Told)
        return Fenced() if found.fenced else Committed(answers_to(batch.groups, found) if found.posted else hoped)

    def _unknown(self, error: BaseException) -> Unknown:
        self.link.drop()
        text = f"{trouble(error)}; whether the change is on disk is not known"
        return Unknown(StoreUnavailable(self._address.shown, text))

    async def _write_in_steps(self, batch: Batch, lock_ms: int = LOCK_MS) -> Outcome:
        """One statement after the other; whatever was not committed is undone."""
        applied = await self._apply(batch, lock_ms)
        return await self.commit(applied) if isinstance(applied, Committed) else applied

    async def _apply(self, batch: Batch, lock_ms: int) -> Committed | Failed | Fenced:
        """Do everything but commit; nothing is left to undo when that did not come off."""
        try:
            connection = await self._begun(batch, lock_ms)
            answers = None if connection is None else await self._applied(connection, batch, lock_ms)
        except Exception as error:
            await self._roll_back()
            if not is_about_database(error) or may_be_of_one(error):
                raise
            return Failed(unavailable(self._address.shown, error))
        return Fenced() if answers is None else Committed(answers)

    async def _begun(self, batch: Batch, lock_ms: int) -> Connection | None:
        """A connection inside a transaction; None when the worker's epoch is not the batch's any more."""
        opening = f"{BEGIN}; set local lock_timeout = {lock_ms}"
        if batch.worker_id is not None:
            opening += f"; {self._fence(batch.worker_id, batch.epoch)}"
        connection = await self.link.connection()
        try:
            said = await connection.execute(opening)
        except LOST:
            # It may have been lost while nobody needed it.
            self.link.drop()
            connection = await self.link.connection()
            said = await connection.execute(opening)
        if said == "SELECT 0":
            await self._roll_back()
            return None
        return connection

    def _fence(self, worker_id: str, epoch: int) -> str:
        worker = f"{quoted(self._schema)}.workers where worker_id = {literal(worker_id)}"
        return f"select 1 from {worker} and epoch = {epoch:d} for key share"  # noqa: S608 - quoted, and a number

    async def _applied(self, connection: Connection, batch: Batch, lock_ms: int) -> Answers | None:
        """All groups together, or, when one of them spoils that, each for itself; None when fenced meanwhile."""
        try:
            answers = await answer(connection, self._schema, apply_groups(batch.groups), self._floors)
            if not is_torn(batch.groups, answers):
                return answers
        except Exception as error:
            if is_about_database(error):
                raise
        await self._roll_back()
        # This is another transaction: what held in the first one may not hold in it.
        again = await self._begun(batch, lock_ms)
        if again is None:
            return None
        return await answer(again, self._schema, apply_singly(batch.groups), self._floors)

    async def commit(self, committed: Committed) -> Outcome:
        """End the transaction; in between nobody knows what becomes of it."""
        try:
            said = await (await self.link.connection()).execute("commit")
        except Exception as error:  # noqa: BLE001 - whatever it was, nobody knows what became of the batch
            return self._unknown(error)
        if said != "COMMIT":
            return Failed(StoreUnavailable(self._address.shown, "the server undid the change; try again"))
        return committed

    async def _roll_back(self) -> None:
        try:
            await (await self.link.connection()).execute("rollback")
        except Exception:  # noqa: BLE001 - a connection that cannot even do this is not used any more
            self.link.drop()
