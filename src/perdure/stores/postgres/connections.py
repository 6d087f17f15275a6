"""Connections to Postgres that are made when they are needed, and made again after they were lost.

In:   an address.
Out:  asyncpg connections, set up as ours are.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, TypeAlias

import asyncpg

from perdure.stores.postgres.address import Address
from perdure.stores.postgres.errors import LOST

if TYPE_CHECKING:
    Connection: TypeAlias = asyncpg.Connection[asyncpg.Record]
else:
    # It takes no parameter when it runs.
    Connection = asyncpg.Connection

ANSWER_SECONDS = 30.0
# A process that was stopped inside a transaction must not hold its locks for ever.
IDLE_IN_TRANSACTION_MS = 2000
# Nothing of ours waits for longer than this for a row that somebody else holds.
LOCK_MS = 5000
STATEMENTS = 300
# What the connections are for that read what the engine asks for.
READS = "reads"
SETTINGS = {
    "default_transaction_isolation": "read committed",
    "default_transaction_read_only": "off",
    "idle_in_transaction_session_timeout": str(IDLE_IN_TRANSACTION_MS),
    "lock_timeout": str(LOCK_MS),
    "statement_timeout": str(int(ANSWER_SECONDS * 1000)),
    "jit": "off",
}

# Rows are looked up by their keys, whatever the planner believes of tables it has not counted yet, or of how many rows
# a number that it does not know leaves over.
BY_KEYS = {"enable_seqscan": "off", "enable_hashjoin": "off", "enable_mergejoin": "off"}


class Link:
    """One connection."""

    def __init__(self, address: Address, purpose: str) -> None:
        self._address = address
        self._purpose = purpose
        self._connection: Connection | None = None

    async def connection(self) -> Connection:
        """The connection; a new one when it was lost."""
        connection = self._connection
        if connection is None or connection.is_closed():
            connection = self._connection = await dial(self._address, self._purpose)
        return connection

    @property
    def is_lost(self) -> bool:
        """Whether there is no connection now."""
        return self._connection is None or self._connection.is_closed()

    def drop(self) -> None:
        """Let go of the connection; whatever it has under way is undone by the server."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.terminate()

    async def close(self) -> None:
        """Say farewell, if anybody listens."""
        connection, self._connection = self._connection, None
        if connection is not None and not connection.is_closed():
            try:
                await connection.close(timeout=1.0)
            except LOST:
                connection.terminate()


async def dial(address: Address, purpose: str, statements: int = STATEMENTS) -> Connection:
    """A new connection, set up as ours are; behind a pooler it belongs to nobody, and is left as it is."""
    name = {"application_name": f"perdure {purpose}"}
    try:
        return await asyncpg.connect(
            address.dsn,
            timeout=address.connect_seconds,
            command_timeout=ANSWER_SECONDS,
            statement_cache_size=0 if address.is_pooled else statements,
            server_settings=name if address.is_pooled else SETTINGS | name | (BY_KEYS if purpose == READS else {}),
        )
    except (asyncpg.DataError, ValueError) as error:
        if isinstance(error, (asyncpg.ClientConfigurationError, OSError)):
            raise
        # A setting of the URL that the server does not take, or a variable that the driver cannot read.
        raise asyncpg.ClientConfigurationError(f"a value cannot be used: {error}") from None


async def dial_first(address: Address, purpose: str = "opening") -> tuple[Connection, Address]:
    """A first connection, and the address with what is learnt from it: whether a pooler stands before the server."""
    try:
        # Whatever a statement that is kept is called, behind a pooler somebody else may have called theirs so.
        connection = await dial(address, purpose, statements=0)
    except asyncpg.ProtocolViolationError as error:
        # A pooler does not take settings that it does not know.
        if "startup parameter" not in str(error):
            raise
        pooled = address._replace(is_pooled=True)
        return await dial(pooled, purpose), pooled
    # What a pooler says of itself is not what the server behind it says.
    is_pooled = connection.get_server_pid() != await connection.fetchval("select pg_backend_pid()")
    return connection, address._replace(is_pooled=is_pooled)


class Links:
    """A few connections that take turns."""

    def __init__(self, address: Address, purpose: str, count: int) -> None:
        self._all = [Link(address, purpose) for _ in range(count)]
        self._idle: asyncio.LifoQueue[Link] = asyncio.LifoQueue()
        for link in self._all:
            self._idle.put_nowait(link)

    @asynccontextmanager
    async def one(self) -> AsyncIterator[Link]:
        """One that nobody else uses meanwhile."""
        link = await self._idle.get()
        try:
            yield link
        finally:
            self._idle.put_nowait(link)

    async def close(self) -> None:
        for link in self._all:
            await link.close()

    def drop(self) -> None:
        for link in self._all:
            link.drop()
