"""Writing inside somebody else's transaction: what they commit and what we write is there together, or not at all.

In:   a connection of asyncpg or psycopg that is in a transaction, and one group of operations.
Out:  its answer; nothing is committed here.
"""

import asyncio
import sys
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol, cast

from perdure.errors import BadOption
from perdure.stores.answers import APPLIED, Answer
from perdure.stores.operations import Operation
from perdure.stores.postgres.address import Address
from perdure.stores.postgres.connections import Connection
from perdure.stores.postgres.executor import answer
from perdure.stores.postgres.names import channel_of
from perdure.stores.rules.batch import apply_groups, is_torn

_CLOSED = "the connection is closed; give one that is in a transaction"
_NO_TRANSACTION = "the connection is in no transaction; begin one, or start and signal without it"


class Guest(Protocol):
    """A connection that is not ours."""

    async def fetch(self, sql: str, *parameters: object) -> list[Any]:
        """The rows of a query."""

    def savepoint(self) -> AbstractAsyncContextManager[object]:
        """What is done inside is undone when it fails, and nothing else."""


async def write_within(connection: object, address: Address, group: Sequence[Operation]) -> Answer:
    """Apply a group inside the transaction this connection is in."""
    guest = await _guest(connection)
    told: Answer = APPLIED
    try:
        async with guest.savepoint():
            told = await _apply(guest, address, group)
    except _Refused as refused:
        told = refused.answer
    except Exception as error:
        if trouble := _trouble(error, address):
            raise BadOption(trouble) from error
        raise
    return told


def _trouble(error: Exception, address: Address) -> str | None:
    """What is wrong with a connection, as both drivers tell it; None for what is not its fault."""
    match getattr(error, "sqlstate", None):
        case "42P01" | "3F000":
            where = f"in the schema {address.schema!r} of the database the connection is to"
            return f"there are no tables of Perdure {where}; give a connection to {address.shown}"
        case "25P02":
            return "the transaction of the connection has failed before; roll it back, and begin another"
        case "25006":
            return "the transaction of the connection only reads; begin one that writes"
        case "42501":
            remedy = "`perdure migrate --print-roles` shows what it needs"
            return f"the role of the connection may not do this: {error}; {remedy}"
    return None


async def _apply(guest: Guest, address: Address, group: Sequence[Operation]) -> Answer:
    found = await answer(cast("Connection", guest), address.schema, apply_groups([group]))
    told = found.get(0, APPLIED)
    if is_torn([group], {0: told}):
        raise _Refused(told)
    if address.notifies:
        # Told when, and only if, their transaction is committed.
        await guest.fetch(f"select pg_notify('{channel_of(address.schema)}', ':w')")
    return told


class _Refused(Exception):  # noqa: N818 - never leaves this module
    """The group was refused half-way, and is undone."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(answer)
        self.answer = answer


async def _guest(connection: object) -> Guest:
    psycopg = sys.modules.get("psycopg")
    if hasattr(connection, "is_in_transaction"):
        return _Asyncpg(cast("Connection", connection))
    if psycopg is not None and isinstance(connection, psycopg.AsyncConnection):
        return await _Psycopg(connection).begun()
    if psycopg is not None and isinstance(connection, psycopg.Connection):
        return await SyncGuest(connection).begun()
    raise BadOption(f"{connection!r} is no connection of asyncpg or psycopg; give the one your transaction is on")


class _Asyncpg:
    def __init__(self, connection: Connection) -> None:
        if connection.is_closed():
            raise BadOption(_CLOSED)
        if not connection.is_in_transaction():
            raise BadOption(_NO_TRANSACTION)
        self._connection = connection

    async def fetch(self, sql: str, *parameters: object) -> list[Any]:
        return await self._connection.fetch(sql, *parameters)

    def savepoint(self) -> AbstractAsyncContextManager[object]:
        return self._connection.transaction()


class _Psycopg:
    """An async connection of psycopg."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    async def begun(self) -> "_Psycopg":
        if _is_idle(self._connection):
            await self._connection.execute("select 1")
        return self

    async def fetch(self, sql: str, *parameters: object) -> list[Any]:
        from psycopg import AsyncRawCursor  # noqa: PLC0415 - only who has such a connection has it
        from psycopg.rows import tuple_row  # noqa: PLC0415 - as above

        async with AsyncRawCursor(self._connection, row_factory=tuple_row) as cursor:
            await cursor.execute(sql, parameters)
            return [] if cursor.description is None else _records(cursor.description, await cursor.fetchall())

    def savepoint(self) -> AbstractAsyncContextManager[object]:
        return cast("AbstractAsyncContextManager[object]", self._connection.transaction())


class SyncGuest:
    """A connection of psycopg that blocks: used from a thread, while its owner waits."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._transaction: Any = None

    async def begun(self) -> "SyncGuest":
        if _is_idle(self._connection):
            await asyncio.to_thread(self._connection.execute, "select 1")
        return self

    async def fetch(self, sql: str, *parameters: object) -> list[Any]:
        return await asyncio.to_thread(self._fetch, sql, parameters)

    def _fetch(self, sql: str, parameters: Sequence[object]) -> list[Any]:
        from psycopg import RawCursor  # noqa: PLC0415 - as above
        from psycopg.rows import tuple_row  # noqa: PLC0415 - as above

        with RawCursor(self._connection, row_factory=tuple_row) as cursor:
            cursor.execute(sql, parameters)
            return [] if cursor.description is None else _records(cursor.description, cursor.fetchall())

    def savepoint(self) -> "SyncGuest":
        return self

    async def __aenter__(self) -> None:
        self._transaction = self._connection.transaction()
        await asyncio.to_thread(self._transaction.__enter__)

    async def __aexit__(self, *error: object) -> None:
        await asyncio.to_thread(self._transaction.__exit__, *error)


class _Record(tuple[Any, ...]):
    """A row that knows its columns."""

    __slots__ = ()
    names: tuple[str, ...] = ()

    def keys(self) -> tuple[str, ...]:
        return self.names


def _records(description: Any, rows: list[Any]) -> list[Any]:
    kind = type("_Row", (_Record,), {"__slots__": (), "names": tuple(column.name for column in description)})
    return [kind(row) for row in rows]


def _is_idle(connection: Any) -> bool:
    """Whether the transaction that it will be in by itself is yet to begin; BadOption when it will not."""
    from psycopg.pq import PipelineStatus, TransactionStatus  # noqa: PLC0415 - as above

    if connection.closed:
        raise BadOption(_CLOSED)
    if connection.info.pipeline_status != PipelineStatus.OFF:
        raise BadOption("the connection is in a pipeline, where no answer can be waited for; start and signal after it")
    is_idle = bool(connection.info.transaction_status == TransactionStatus.IDLE)
    if is_idle and connection.autocommit:
        raise BadOption(_NO_TRANSACTION)
    return is_idle
