"""Failpoints: named moments in the engine at which a node dies as if killed.

In:   "NAME:N": which moment, and how-many-th time it comes.
Out:  a process that says "struck NAME" and is gone, without a chance to clean up.
They are put around the engine's methods from here, so that the engine has no hook for them and pays nothing.
"""

import functools
import inspect
import itertools
import os
import sqlite3
import threading
from collections.abc import Callable
from typing import Any, NamedTuple

from perdure.engine.committer import Committer
from perdure.engine.engine import StoreEngine
from perdure.engine.groups import ChildStart, StoreAdvance, StoreClosing
from perdure.engine.leasing import takeover
from perdure.engine.leasing.claims import StoreClaimer
from perdure.engine.leasing.heartbeat import Heartbeat
from perdure.engine.leasing.lease import Lease
from perdure.engine.leasing.takeover import Takeover
from perdure.engine.ownership import Ownership
from perdure.engine.watch import Watch
from perdure.errors import StoreUnavailable
from perdure.stores.answers import Committed, Fenced, Outcome, Unknown
from perdure.stores.operations import Batch, ClaimRuns, DeleteWorker, FreeRuns, Operation, RaiseEpoch
from perdure.stores.postgres.writing.batches import Writes
from perdure.stores.queries import migrations
from perdure.stores.rules.reads import Reads
from perdure.stores.sqlite import migration
from perdure.stores.sqlite import store as sqlite
from perdure.stores.sqlite.connection import SqliteFile
from perdure.stores.sqlite.locks import FileLock
from perdure.stores.sqlite.presence import SqlitePresence
from perdure.stores.sqlite.store import SqliteStore
from perdure.stores.sqlite.transactions import Transactions
from perdure.worker.effects import Effects
from perdure.worker.executor import Executor
from perdure.worker.messages import IncomingMessages
from perdure.worker.parking import Parking
from perdure.worker.worker import Worker
from tests.processes import workflows

CODE = 137


class Situation:
    """What has to happen so that a moment comes."""

    START = "the node opens the database"
    LOAD = "the node has runs to work on"
    RESCUE = "another worker was killed before"
    LEAVE = "the node is told to leave"
    DOUBT = "the answer of a commit is lost"


class Failpoint(NamedTuple):
    """Before or after which method of what; `only` calls whose arguments are so; `often` is how-many-th under load."""

    owner: Any
    method: str
    when: str
    situation: str = Situation.LOAD
    only: Callable[..., bool] = lambda *_: True
    often: int = 1


def _asks(kind: type[Operation]) -> Callable[..., bool]:
    return lambda _, *operations: isinstance(operations[0], kind)


def _is_renewal(*_: object) -> bool:
    return threading.current_thread().name == "perdure-heartbeat"


FAILPOINTS: dict[str, Failpoint] = {
    # Opening
    "before_migration": Failpoint(sqlite, "migrate", "before", Situation.START),
    "in_migration": Failpoint(sqlite, "migrate", "inside", Situation.START, often=2),
    "after_migration": Failpoint(sqlite, "migrate", "after", Situation.START),
    "before_register": Failpoint(Lease, "begin", "before", Situation.START),
    "before_row": Failpoint(SqlitePresence, "_hold_lock", "after", Situation.START),
    "after_register": Failpoint(Lease, "begin", "after", Situation.START),
    "before_watch": Failpoint(Watch, "begin", "before", Situation.START),
    # Writing
    "before_commit": Failpoint(Transactions, "transact", "before", often=20),
    "in_transaction": Failpoint(Transactions, "finish", "before", often=20),
    "after_commit": Failpoint(Transactions, "finish", "after", often=20),
    "before_answers": Failpoint(Committer, "_settle", "before", often=20),
    "after_answers": Failpoint(Committer, "_settle", "after", often=20),
    # Claiming and coming to life
    "before_claim": Failpoint(Committer, "apply", "before", only=_asks(ClaimRuns), often=3),
    "after_claim": Failpoint(StoreClaimer, "load", "before", often=2),
    "after_load": Failpoint(Reads, "load_runs", "after", often=2),
    "before_adopt": Failpoint(Worker, "adopt", "before", often=30),
    "after_adopt": Failpoint(Worker, "adopt", "after", often=30),
    # Moving on
    "before_advance": Failpoint(Ownership, "advance", "before", often=99),
    "after_advance": Failpoint(Ownership, "advance", "after", often=99),
    "before_step_told": Failpoint(StoreAdvance, "settle", "before", often=99),
    "before_effects": Failpoint(Effects, "start", "before", often=99),
    "after_effects": Failpoint(Effects, "start", "after", often=99),
    "in_activity": Failpoint(workflows, "_done", "before", often=50),
    "after_activity": Failpoint(workflows, "_done", "after", often=50),
    "before_message": Failpoint(IncomingMessages, "notice", "before", often=5),
    "after_message": Failpoint(Executor, "_read", "after", often=5),
    "before_stop": Failpoint(Executor, "_stop", "before", often=3),
    "after_stop": Failpoint(Executor, "_stop", "after", often=3),
    "before_attempt": Failpoint(Ownership, "record_attempt", "before", often=7),
    "after_attempt": Failpoint(Ownership, "record_attempt", "after", often=7),
    "before_child": Failpoint(Ownership, "start_child", "before", often=5),
    "after_child": Failpoint(ChildStart, "settle", "before", often=5),
    "before_end_told": Failpoint(StoreClosing, "settle", "before", often=9),
    "before_continue": Failpoint(Ownership, "continue_run", "before", often=9),
    "after_continue": Failpoint(Ownership, "continue_run", "after", often=9),
    # Parking
    "before_park": Failpoint(Parking, "park", "before", often=3),
    "after_park": Failpoint(Parking, "_parked", "before", often=3),
    # The lease
    "before_renewal": Failpoint(SqlitePresence, "renew", "before", often=3),
    "in_renewal": Failpoint(FileLock, "release", "before", only=_is_renewal, often=3),
    "after_renewal": Failpoint(Heartbeat, "_beat", "after", often=4),
    "before_takeover": Failpoint(Takeover, "take_over", "before", Situation.RESCUE),
    "after_raise_epoch": Failpoint(Committer, "apply", "after", Situation.RESCUE, _asks(RaiseEpoch)),
    "between_bites": Failpoint(Committer, "apply", "after", Situation.RESCUE, _asks(FreeRuns), often=2),
    "before_delete_worker": Failpoint(Committer, "apply", "before", Situation.RESCUE, _asks(DeleteWorker)),
    "after_delete_worker": Failpoint(SqlitePresence, "forget", "before", Situation.RESCUE),
    "after_takeover": Failpoint(Takeover, "take_over", "after", Situation.RESCUE),
    # Not knowing
    "before_recovery": Failpoint(Lease, "recover", "before", Situation.DOUBT, often=2),
    "after_new_epoch": Failpoint(Lease, "recover", "after", Situation.DOUBT, often=2),
    "before_reload": Failpoint(Reads, "owned_runs", "after", Situation.DOUBT, often=2),
    # Leaving
    "before_leaving": Failpoint(Worker, "close", "before", Situation.LEAVE),
    "in_hand_back": Failpoint(Parking, "hand_back", "after", Situation.LEAVE, often=5),
    "after_hand_back": Failpoint(Parking, "_handed_back", "before", Situation.LEAVE, often=5),
    "before_closing": Failpoint(StoreEngine, "close", "before", Situation.LEAVE),
    "before_lease_end": Failpoint(Lease, "release", "before", Situation.LEAVE),
    "after_lease_end": Failpoint(Lease, "release", "after", Situation.LEAVE),
    "before_store_close": Failpoint(SqliteStore, "close", "before", Situation.LEAVE),
    "after_store_close": Failpoint(SqliteStore, "close", "after", Situation.LEAVE),
}


def install(wanted: str) -> None:
    """Let this process die at the given moment."""
    name, _, number = wanted.partition(":")
    point, numbers = FAILPOINTS[name], itertools.count(1)

    def strike() -> None:
        if next(numbers) == int(number):
            os.write(1, f"struck {name}\n".encode())
            os._exit(CODE)

    # Few runs are to be enough for several bites.
    takeover.BITE = 5
    if point.situation == Situation.DOUBT:
        _lose_answers()
    if point.when == "inside":
        _strike_in_migration(strike)
    else:
        setattr(point.owner, point.method, _around(point, getattr(point.owner, point.method), strike))


def _around(point: Failpoint, method: Callable[..., Any], strike: Callable[[], None]) -> Callable[..., Any]:
    @functools.wraps(method)
    async def waited(*args: Any, **options: Any) -> Any:
        if point.when == "before" and point.only(*args):
            strike()
        answer = await method(*args, **options)
        if point.when == "after" and point.only(*args):
            strike()
        return answer

    @functools.wraps(method)
    def called(*args: Any, **options: Any) -> Any:
        if point.when == "before" and point.only(*args):
            strike()
        answer = method(*args, **options)
        if point.when == "after" and point.only(*args):
            strike()
        return answer

    return waited if inspect.iscoroutinefunction(method) else called


def _strike_in_migration(strike: Callable[[], None]) -> None:
    """In the transaction of a step, when its tables are made and its number is not written."""
    connect = SqliteFile.connect

    def connect_and_strike(file: SqliteFile, **options: bool) -> sqlite3.Connection:
        db = connect(file, **options)
        db.create_function("strike", 0, strike)
        return db

    setattr(SqliteFile, "connect", connect_and_strike)  # noqa: B010 - mypy does not like methods to be replaced
    setattr(migration, "migrations", lambda kind: [f"{step}\nselect strike();" for step in migrations(kind)])  # noqa: B010


def _lose_answers() -> None:
    """Every eighth commit happens, and nobody is told."""
    finish, numbers = Transactions.finish, itertools.count(1)

    def finish_silently(transactions: Transactions, committed: Committed) -> Any:
        outcome = finish(transactions, committed)
        if next(numbers) % 8:
            return outcome
        return Unknown(StoreUnavailable(transactions.url, "the answer was lost on purpose"))

    setattr(Transactions, "finish", finish_silently)  # noqa: B010 - as above


def tell_fenced() -> None:
    """Say whenever a commit was refused because its worker's epoch had moved."""
    transact = Transactions.transact

    def transact_and_tell(transactions: Transactions, *args: Any, **options: Any) -> Any:
        outcome = transact(transactions, *args, **options)
        if isinstance(outcome, Fenced):
            os.write(1, b"fenced\n")
        return outcome

    setattr(Transactions, "transact", transact_and_tell)  # noqa: B010 - as above
    write = Writes.write

    async def write_and_tell(writes: Writes, batch: Batch) -> Outcome:
        outcome = await write(writes, batch)
        if isinstance(outcome, Fenced):
            os.write(1, b"fenced\n")
        return outcome

    setattr(Writes, "write", write_and_tell)  # noqa: B010 - as above
