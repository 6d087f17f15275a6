"""Transactional activities on Postgres: user code on a connection of its own, in a transaction that is ours.

In:   the code of an activity: a coroutine gets a connection of asyncpg, a plain function one of psycopg.
Out:  what became of it: its rows and what the engine writes with them are on disk together, or nothing is.

The connection is set up as the user's role is, and not as the engine's are. The epoch of the worker is looked at when
the code has returned, and its row is held from then until the commit: a worker that is taken over commits nothing, and
nobody who takes it over waits for user code.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, Protocol, cast

import asyncpg

from perdure.errors import BadOption, StoreUnavailable, TransactionEnded
from perdure.stores.answers import Committed, Failed, Fenced, Outcome, Undone, Unknown
from perdure.stores.dialects import literal, quoted
from perdure.stores.operations import Operation
from perdure.stores.port import TransactionalCode
from perdure.stores.postgres.address import Address
from perdure.stores.postgres.connections import BY_KEYS, STATEMENTS, Connection
from perdure.stores.postgres.errors import LOST, is_about_database, is_lost, trouble, unavailable
from perdure.stores.postgres.executor import answer
from perdure.stores.postgres.writing.caller_transaction import SyncGuest
from perdure.stores.rules.batch import apply_groups, is_torn

log = logging.getLogger("perdure.store")

# So many transactions of activities are open at a time, of each kind of connection.
MOST = 10
APPLICATION = "perdure activities"
# Rows of ours are looked up by their keys; the code is over by then, and went by its own settings.
_SETTINGS = ", ".join(f"set_config({literal(name)}, {literal(value)}, true)" for name, value in BY_KEYS.items())
_PLAN = f"select {_SETTINGS}"
# The number of a transaction stays the same until it ends, and no other one has it.
_XID = "select pg_current_xact_id()::text as xid"
_SAME_XID = "select pg_current_xact_id_if_assigned()::text as xid"


class Session(Protocol):
    """A connection of a driver, in a transaction or not."""

    connection: object

    async def begin(self) -> None: ...
    async def run(self, code: TransactionalCode) -> object: ...
    async def fetch(self, sql: str, *parameters: object) -> list[Any]: ...
    async def commit(self) -> None: ...
    async def roll_back(self) -> None: ...
    async def reset(self) -> None: ...
    def drop(self) -> None: ...
    async def close(self) -> None: ...

    @property
    def is_closed(self) -> bool: ...


class AsyncpgSession:
    """A connection for coroutines."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self._transaction: Any = None

    @classmethod
    async def dial(cls, address: Address) -> "AsyncpgSession":
        return cls(
            await asyncpg.connect(
                address.dsn,
                timeout=address.connect_seconds,
                statement_cache_size=0 if address.is_pooled else STATEMENTS,
                server_settings={"application_name": APPLICATION},
            )
        )

    async def begin(self) -> None:
        # Not by hand: what the code begins itself is a savepoint then.
        self._transaction = self.connection.transaction(isolation="read_committed", readonly=False)
        await self._transaction.start()

    async def run(self, code: TransactionalCode) -> object:
        return await code.run(self.connection)

    async def fetch(self, sql: str, *parameters: object) -> list[Any]:
        return await self.connection.fetch(sql, *parameters)

    async def commit(self) -> None:
        await self._transaction.commit()

    async def roll_back(self) -> None:
        await self._transaction.rollback()

    async def reset(self) -> None:
        await self.connection.reset(timeout=5)

    def drop(self) -> None:
        self.connection.terminate()

    async def close(self) -> None:
        with contextlib.suppress(*LOST):
            await self.connection.close(timeout=1)

    @property
    def is_closed(self) -> bool:
        return self.connection.is_closed()


class PsycopgSession:
    """A connection for plain functions, which is used from a thread."""

    def __init__(self, connection: Any) -> None:
        self.connection = connection
        self._guest = SyncGuest(connection)

    @classmethod
    async def dial(cls, address: Address) -> "PsycopgSession":
        import psycopg  # noqa: PLC0415 - only plain functions need it

        options: dict[str, Any] = {"application_name": APPLICATION}
        if address.is_pooled:
            options["prepare_threshold"] = None
        timeout = max(round(address.connect_seconds), 1)
        return cls(await asyncio.to_thread(psycopg.connect, address.dsn, connect_timeout=timeout, **options))

    async def begin(self) -> None:
        """It begins with its first statement."""

    async def run(self, code: TransactionalCode) -> object:
        return await asyncio.to_thread(code.run, self.connection)

    async def fetch(self, sql: str, *parameters: object) -> list[Any]:
        return await self._guest.fetch(sql, *parameters)

    async def commit(self) -> None:
        await asyncio.to_thread(self.connection.commit)

    async def roll_back(self) -> None:
        await asyncio.to_thread(self.connection.rollback)

    async def reset(self) -> None:
        await asyncio.to_thread(self._reset)

    def _reset(self) -> None:
        self.connection.autocommit = True
        self.connection.execute("discard all")
        self.connection.autocommit = False

    def drop(self) -> None:
        # A statement of another thread's would keep close() waiting.
        self.connection.pgconn.finish()

    async def close(self) -> None:
        await asyncio.to_thread(self.connection.close)

    @property
    def is_closed(self) -> bool:
        return bool(self.connection.closed)


class Sessions:
    """Connections of one kind: few, made when they are needed, one user at a time."""

    def __init__(self, dial: Callable[[Address], Any]) -> None:
        self._dial = dial
        self._idle: list[Session] = []
        self._busy: set[Session] = set()
        self._room = asyncio.Semaphore(MOST)

    @contextlib.asynccontextmanager
    async def one(self, address: Address) -> AsyncIterator[Session]:
        """One that nobody else uses meanwhile; as good as new for the next, or dropped."""
        async with self._room:
            session = self._idle.pop() if self._idle else cast("Session", await self._dial(address))
            self._busy.add(session)
            try:
                yield session
                await session.reset()
                self._idle.append(session)
            except BaseException:
                session.drop()
                raise
            finally:
                self._busy.discard(session)

    async def close(self) -> None:
        while self._idle:
            await self._idle.pop().close()

    def drop(self) -> None:
        for session in (*self._idle, *self._busy):
            session.drop()
        self._idle.clear()


class _Ended(Exception):  # noqa: N818 - never leaves this module
    """What became of it, when that is not a commit."""

    def __init__(self, outcome: Outcome | Undone) -> None:
        super().__init__(outcome)
        self.outcome = outcome


class PostgresActivityTransactions:
    """Runs code beside everything else."""

    is_alone = False

    def __init__(self, address: Address) -> None:
        self.address = address
        self._sessions = {True: Sessions(AsyncpgSession.dial), False: Sessions(PsycopgSession.dial)}
        self._tasks: set[asyncio.Task[None]] = set()

    def connection_type(self, *, is_async: bool) -> str | None:
        return "asyncpg.Connection" if is_async else "psycopg.Connection"

    def transact(
        self, code: TransactionalCode, worker_id: str, epoch: int, done: Callable[[Outcome | Undone], None]
    ) -> None:
        task = asyncio.get_running_loop().create_task(self._tell(code, worker_id, epoch, done))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Wait for what is being committed; the rest has been given up by now."""
        for sessions in self._sessions.values():
            await sessions.close()
            sessions.drop()

    def drop(self) -> None:
        for task in self._tasks:
            task.cancel()
        for sessions in self._sessions.values():
            sessions.drop()

    async def _tell(
        self, code: TransactionalCode, worker_id: str, epoch: int, done: Callable[[Outcome | Undone], None]
    ) -> None:
        try:
            outcome = await self._transact(code, worker_id, epoch)
        except Exception as error:
            log.exception("the transaction of an activity failed", extra={"event": "transaction_failed"})
            outcome = Unknown(StoreUnavailable(self.address.shown, f"{type(error).__name__}: {error}"))
        done(outcome)

    async def _transact(self, code: TransactionalCode, worker_id: str, epoch: int) -> Outcome | Undone:
        # How it ended is known before the connection is put in order for the next.
        ended: list[Outcome | Undone] = []
        try:
            async with self._sessions[code.is_async].one(self.address) as session:
                ended.append(await self._transact_on(session, code, worker_id, epoch))
        except ModuleNotFoundError as error:
            missing = f"a plain function needs the package {error.name}: pip install 'psycopg[binary]', or `async def`"
            return Undone(BadOption(missing))
        except _Ended as end:
            return end.outcome
        except Exception as error:  # noqa: BLE001 - no connection, or one that could not be put in order
            return ended[0] if ended else Failed(unavailable(self.address.shown, error))
        return ended[0]

    async def _transact_on(
        self, session: Session, code: TransactionalCode, worker_id: str, epoch: int
    ) -> Outcome | Undone:
        xid = await self._begun(session)
        try:
            value = await session.run(code)
        except BaseException as error:  # noqa: BLE001 - whatever user code raises is its outcome
            await self._roll_back(session)
            return Undone(error)
        if not await self._is_open(session, xid):
            raise _Ended(Undone(TransactionEnded(code.activity, "commit, rollback or close")))
        await code.ready()
        groups = None
        if code.accept(value):
            await code.settled()
            groups = code.groups()
        if groups is None:
            await self._roll_back(session)
            return Undone(code.unwanted())
        return await self._finish(session, groups, worker_id, epoch)

    async def _begun(self, session: Session) -> str:
        """Begin; the number of the transaction."""
        await session.begin()
        return str((await session.fetch(_XID))[0][0])

    async def _is_open(self, session: Session, xid: str) -> bool:
        """Whether it is still the same transaction; one that has failed is, and can only be rolled back."""
        if session.is_closed:
            return False
        try:
            return bool((await session.fetch(_SAME_XID))[0][0] == xid)
        except Exception as error:  # noqa: BLE001 - told by the driver that it has
            if getattr(error, "sqlstate", None) != "25P02":
                return False
            await self._roll_back(session)
            raise _Ended(Undone(error)) from None

    async def _finish(
        self, session: Session, groups: Sequence[Sequence[Operation]], worker_id: str, epoch: int
    ) -> Outcome | Undone:
        """Write what belongs to it, under the epoch of the worker, and commit."""
        try:
            await session.fetch(_PLAN)
            if not await session.fetch(self._fence(worker_id, epoch)):
                await self._roll_back(session)
                return Fenced()
            answers = await answer(cast("Connection", session), self.address.schema, apply_groups(groups))
        except Exception as error:  # noqa: BLE001 - the database, or what was to be written: nothing is
            await self._roll_back(session)
            return Failed(unavailable(self.address.shown, error)) if _is_about_database(error) else Undone(error)
        if is_torn(groups, answers):
            await self._roll_back(session)
            return Undone(RuntimeError(f"the outcome was refused: {answers}"))
        return await self.commit(session, Committed(answers))

    def _fence(self, worker_id: str, epoch: int) -> str:
        worker = f"{quoted(self.address.schema)}.workers where worker_id = {literal(worker_id)}"
        return f"select 1 from {worker} and epoch = {epoch:d} for key share"  # noqa: S608 - quoted, and a number

    async def commit(self, session: Session, committed: Committed) -> Outcome | Undone:
        """End the transaction; in between nobody knows what becomes of it."""
        try:
            await session.commit()
        except Exception as error:
            if getattr(error, "sqlstate", None) and not _is_lost(error):
                # A constraint that is looked at now, for one: the server has undone it.
                return Undone(error)
            text = f"{trouble(error)}; whether the change is on disk is not known"
            raise _Ended(Unknown(StoreUnavailable(self.address.shown, text))) from error
        return committed

    async def _roll_back(self, session: Session) -> None:
        try:
            await session.roll_back()
        except Exception:  # noqa: BLE001 - a connection that cannot even do this is not used any more
            session.drop()


def _is_lost(error: Exception) -> bool:
    return is_lost(cast("asyncpg.PostgresError", error))


def _is_about_database(error: Exception) -> bool:
    """Whether the database is to blame, as either driver tells it."""
    return is_about_database(error) or type(error).__module__.startswith("psycopg")
