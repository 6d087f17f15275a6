"""Links: connections to Postgres that are made when they are needed, and made again after they were lost.

In:   an address.
Out:  asyncpg connections, and what their errors mean.
"""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, TypeAlias

import asyncpg

from perdure.errors import StoreUnavailable
from perdure.stores.postgres.address import Address

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

AGAIN = "nothing was changed, try again"
# What helps, by the code of an error.
REMEDIES = {
    "08P01": "a pooler in between may want settings; see docs/postgres.md; nothing was changed",
    "25006": "name the primary; nothing was changed",
    "28000": "name a role that may log in, or see to pg_hba.conf; nothing was changed",
    "28P01": "check the user and the password: in the URL, in PGPASSWORD or in ~/.pgpass; nothing was changed",
    "3D000": "create it (createdb), or name another one in the URL; nothing was changed",
    "42501": "`perdure migrate --print-roles` shows what a role must be granted; nothing was changed",
    "42704": "correct the options of the URL, see docs/postgres.md; nothing was changed",
    "53300": "give the server or the role more connections, or use fewer processes; nothing was changed, try again",
    "57P03": "it starts, stops or recovers; nothing was changed, try again",
}

# What goes wrong on the way to the server, on it, or because it cannot take more.
LOST = (OSError, asyncpg.InterfaceError, asyncpg.InternalClientError, asyncio.TimeoutError)
_OF_THE_DATA = ("22", "23", "54")


# The server ends the connection, and whatever was under way on it may have been done before.
_ENDS = ("08", "57P01", "57P02", "57P03", "57P05")


def is_lost(error: asyncpg.PostgresError) -> bool:
    """Whether the server says farewell, and not what became of what it was told."""
    return (error.sqlstate or "").startswith(_ENDS)


def is_of_the_data(error: BaseException) -> bool:
    """Whether what was to be written is to blame, and not the database."""
    # The driver itself finds numbers that are too large; what it says of a URL or a certificate is something else.
    is_unfit = isinstance(error, ValueError) and not isinstance(error, (asyncpg.ClientConfigurationError, OSError))
    return is_unfit or (isinstance(error, asyncpg.PostgresError) and (error.sqlstate or "")[:2] in _OF_THE_DATA)


def is_about_database(error: BaseException) -> bool:
    """Whether the database is to blame: it cannot be reached, or does not do now what it is told."""
    return isinstance(error, (*LOST, asyncpg.PostgresError)) and not is_of_the_data(error)


def trouble(error: BaseException) -> str:
    """What is wrong, in words."""
    match error:
        case TimeoutError():
            said = "the server does not answer"
        case socket.gaierror():
            said = "the host is not known here"
        case ConnectionRefusedError():
            said = "nobody listens there: the server is not running, or its host or port is another"
        case ssl.SSLCertVerificationError():
            said = f"the certificate of the server is not accepted: {error.verify_message.rstrip('.')}"
        case ssl.SSLError():
            said = f"no encrypted connection: {error.reason or error}"
        case ConnectionError() if "connection_lost" in str(error):
            said = "whoever listens there closed the connection, and may be no Postgres"
        case asyncpg.InternalClientError():
            # Of the driver's own states people know nothing.
            said = "the connection was lost in the middle of something"
        case OSError() if error.strerror:
            said = error.strerror if error.filename is None else f"{error.strerror}: {error.filename}"
        case _:
            said = (str(error).strip() or type(error).__name__).splitlines()[0]
    return said


def remedy(error: BaseException) -> str:
    """What to do about it."""
    match error:
        case asyncpg.PostgresError():
            helps = REMEDIES.get(error.sqlstate or "", AGAIN)
        case asyncpg.InterfaceError() if "password" in str(error):
            helps = REMEDIES["28P01"]
        case asyncpg.ClientConfigurationError() if "root certificate" in str(error):
            helps = "name a file with it in sslrootcert, or use another sslmode; nothing was changed"
        case asyncpg.ClientConfigurationError():
            helps = "correct the URL or the PG* variables; nothing was changed"
        case socket.gaierror():
            helps = "correct the host in the URL or in PGHOST; nothing was changed"
        case ssl.SSLError():
            helps = (
                "name the host as its certificate does, and a file with its root in sslrootcert; nothing was changed"
            )
        case ConnectionError() if "SSL" in str(error):
            helps = "let the server speak TLS, correct the port, or use another sslmode; nothing was changed"
        case FileNotFoundError() | PermissionError():
            helps = "check the socket and the files that the URL or the PG* variables name; nothing was changed"
        case _:
            helps = AGAIN
    return helps


def unavailable(shown: str, error: BaseException) -> StoreUnavailable:
    return StoreUnavailable(shown, f"{trouble(error)}; {remedy(error)}")


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
