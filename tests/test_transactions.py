"""Transactional activities on SQLite: their SQL and their outcome are on disk together, or neither is."""

import asyncio
import logging
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import asyncpg
import pytest

from perdure import (
    Perdure,
    ResourceNotFound,
    Retry,
    RunFailed,
    Signal,
    TransactionEnded,
    activity,
    attempt,
    resource,
    workflow,
)
from perdure.errors import BadOption, BadValue, StoreUnavailable
from perdure.testing import Environment
from perdure.testing.faults import Crash, Fault

ONCE = Retry(max_attempts=1)
TWICE = Retry(max_attempts=2, initial_interval=1)
ran: list[str] = []
kept: list[sqlite3.Connection] = []
left: list[sqlite3.Cursor] = []


@pytest.fixture(autouse=True)
def _forget() -> None:
    ran.clear()
    kept.clear()
    left.clear()


@pytest.fixture
def path(quick_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A database with two accounts, beside which the engine's tables will be."""
    monkeypatch.setenv("PERDURE_ADOPT", "1")
    path = quick_path / "bank.db"
    with closing(sqlite3.connect(path)) as db:
        db.execute("pragma journal_mode = wal")
        db.executescript("create table accounts (id text primary key, cents int); create table log (key text unique)")
        db.execute("insert into accounts values ('ann', 1000), ('bob', 0)")
        db.commit()
    return path


@pytest.fixture(params=["live", "replay always"])
def env(request: pytest.FixtureRequest, path: Path) -> Environment:
    return Environment(str(path), replay_always=request.param == "replay always")


@pytest.fixture
def read(path: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(path)) as db:
        yield db


def cents(db: sqlite3.Connection, account: str) -> object:
    return db.execute("select cents from accounts where id = ?", (account,)).fetchone()[0]


@activity(transaction=True)
def book(account: str, cents: int) -> int:
    """Takes money, and notes under the key of the call that it did: a second time would break a rule."""
    ran.append(account)
    db = resource(sqlite3.Connection)
    db.execute("update accounts set cents = cents - ? where id = ?", (cents, account))
    db.execute("insert into log values (?)", (attempt().key,))
    left = db.execute("select cents from accounts where id = ?", (account,)).fetchone()
    assert isinstance(left[0], int)
    return left[0]


@workflow
async def pays(account: str, cents: int) -> int:
    return await book(account, cents)


@workflow
async def pays_twice() -> list[int]:
    return [await book("ann", 1), await book("ann", 2)]


@workflow
async def pays_at_once() -> list[int]:
    return list(await asyncio.gather(book("ann", 1), book("bob", 2), book("ann", 3)))


async def test_rows_and_outcome_are_there(env: Environment, read: sqlite3.Connection) -> None:
    async with env:
        assert await env.run(pays, "ann", 300) == 700
    assert cents(read, "ann") == 700
    assert read.execute("select kind from events").fetchall() == [("ActivityCompleted",)]


async def test_one_follows_another(env: Environment, read: sqlite3.Connection) -> None:
    async with env:
        assert await env.run(pays_twice) == [999, 997]
    assert cents(read, "ann") == 997


async def test_several_of_one_run_take_turns(env: Environment, read: sqlite3.Connection) -> None:
    async with env:
        assert await env.run(pays_at_once) == [999, -2, 996]
    assert read.execute("select seq from events order by seq").fetchall() == [(2,), (3,), (4,)]


@activity
async def is_quick() -> str:
    return "quick"


@workflow
async def pays_beside_a_step() -> list[object]:
    return list(await asyncio.gather(book("ann", 1), is_quick(), book("ann", 2), is_quick()))


async def test_what_the_run_did_before_is_on_disk_with_it(env: Environment, read: sqlite3.Connection) -> None:
    """A step that has ended waits for the next batch, and a transaction has the database for itself before that."""
    async with env:
        assert await env.run(pays_beside_a_step) == [999, "quick", 997, "quick"]
    assert ran == ["ann", "ann"]
    assert read.execute("select seq from events order by id").fetchall() == [(2,), (3,), (4,), (5,)]


@pytest.mark.parametrize("fault", list(Fault))
@pytest.mark.parametrize("number", range(6, 10))
async def test_a_fault_at_any_commit_books_once(
    path: Path, read: sqlite3.Connection, number: int, fault: Fault
) -> None:
    """Neither a crash nor an answer that is lost books twice, or records what was not booked."""
    async with Environment(str(path)) as env:
        await env.crash((number, fault))
        while True:
            try:
                run = await env.alive(env.app.start(pays_twice.options(id="pays")))
                assert await env.result(run) == [999, 997]
                break
            except (Crash, StoreUnavailable):
                if env.has_died:
                    await env.crash()
    assert cents(read, "ann") == 997
    assert read.execute("select count(*) from log").fetchone() == (2,)


@activity(transaction=True, retry=TWICE)
def fails_at_first(account: str) -> int:
    db = resource(sqlite3.Connection)
    db.execute("update accounts set cents = cents - 1 where id = ?", (account,))
    if attempt().number == 1:
        raise ConnectionError("down")
    return attempt().number


@workflow
async def tries_a_booking_again(account: str) -> int:
    return await fails_at_first(account)


async def test_a_failed_attempt_leaves_no_rows_and_is_recorded_apart(
    env: Environment, read: sqlite3.Connection
) -> None:
    async with env:
        run = await env.start(tries_a_booking_again, "ann")
        assert await env.result(run) == 2
        assert [failed.attempt for failed in (await env.engine.reader.attempts(run.run_id))] == [1]
    assert cents(read, "ann") == 999


# What code must not do


@activity(transaction=True, retry=TWICE)
def misbehaves(how: str) -> None:
    ran.append(how)
    db = resource(sqlite3.Connection)
    db.execute("update accounts set cents = 0")
    match how:
        case "commit" | "rollback" | "close":
            getattr(db, how)()
        case "with":
            with db:
                pass
        case "script":
            db.executescript("select 1; select 2")
        case "swallowed":
            with pytest.raises(TransactionEnded):
                db.execute("commit")
        case _:
            db.cursor().execute(how)


@workflow
async def lets_it(how: str) -> None:
    await misbehaves(how)


@pytest.mark.parametrize(
    "how",
    [
        "commit",
        "rollback",
        "close",
        "with",
        "script",
        "swallowed",
        "COMMIT",
        "end",
        "-- so\n rollback",
        "begin",
        "attach 'x.db' as x",
        "pragma journal_mode = delete",
        "pragma wal_checkpoint",
        "create temp table runs (run_id text)",
    ],
)
async def test_ending_the_transaction_is_refused_and_fails(path: Path, read: sqlite3.Connection, how: str) -> None:
    """Another attempt would do the same: it is not made."""
    async with Environment(str(path)) as env:
        with pytest.raises(RunFailed, match="must not end its transaction"):
            await env.run(lets_it, how)
        assert ran == [how]
        assert await env.run(pays, "ann", 1) == 999
    assert cents(read, "bob") == 0


@activity(transaction=True, retry=ONCE)
def rolls_back_by_failing() -> str:
    db = resource(sqlite3.Connection)
    db.execute("update accounts set cents = 5")
    with pytest.raises(sqlite3.IntegrityError):
        db.execute("insert or rollback into accounts values ('ann', 7)")
    with pytest.raises(TransactionEnded):
        db.execute("update accounts set cents = 5")
    return "done"


@workflow
async def fails_inside() -> str:
    return await rolls_back_by_failing()


async def test_a_statement_that_rolls_everything_back_harms_nobody(env: Environment, read: sqlite3.Connection) -> None:
    """What came after it would be on disk by itself, without an outcome."""
    async with env:
        with pytest.raises(RunFailed, match="insert or rollback"):
            await env.run(fails_inside)
    assert cents(read, "ann") == 1000


@activity(transaction=True)
def keeps_the_connection() -> int:
    db = resource(sqlite3.Connection)
    kept.append(db)
    db.row_factory = sqlite3.Row
    db.text_factory = bytes
    rows = db.execute("select id, cents from accounts order by id")
    left.append(rows)
    return int(next(rows)["cents"])


@workflow
async def leaks() -> int:
    return await keeps_the_connection()


async def test_a_connection_is_good_for_its_transaction_alone(env: Environment, read: sqlite3.Connection) -> None:
    async with env:
        assert await env.run(leaks) == 1000
        with pytest.raises(sqlite3.ProgrammingError, match="is over"):
            kept[0].execute("update accounts set cents = 0")
        # One that is still being read would keep its view of the database.
        with pytest.raises(sqlite3.ProgrammingError):
            left[0].fetchone()
        assert await env.run(pays, "ann", 1) == 999


@activity(transaction=True, retry=ONCE)
def returns_what_cannot_be_kept() -> object:
    resource(sqlite3.Connection).execute("update accounts set cents = 0")
    return object()


@workflow
async def gets_it() -> object:
    return await returns_what_cannot_be_kept()


async def test_a_result_that_cannot_be_kept_leaves_no_rows(env: Environment, read: sqlite3.Connection) -> None:
    async with env:
        with pytest.raises(RunFailed) as failed:
            await env.run(gets_it)
    assert isinstance(failed.value.__cause__, BadValue)
    assert cents(read, "ann") == 1000


# Which connection


@activity(transaction=True, retry=ONCE)
def asks_for_the_other_store() -> None:
    resource(asyncpg.Connection)


@activity(retry=ONCE)
def has_no_transaction() -> None:
    resource(sqlite3.Connection)


@activity(transaction=True)
async def is_a_coroutine() -> None:
    ran.append("coroutine")


@workflow
async def asks(what: str) -> None:
    await {"other": asks_for_the_other_store, "none": has_no_transaction, "async": is_a_coroutine}[what]()


async def test_the_right_connection_is_named(env: Environment) -> None:
    async with env:
        with pytest.raises(RunFailed, match=r"asyncpg\.Connection .* resource\(sqlite3\.Connection\)") as failed:
            await env.run(asks, "other")
        assert isinstance(failed.value.__cause__, ResourceNotFound)
        with pytest.raises(RunFailed, match=r"transaction=True"):
            await env.run(asks, "none")


async def test_a_coroutine_is_refused_on_sqlite(env: Environment) -> None:
    async with env:
        with pytest.raises(RunFailed, match="plain `def`") as failed:
            await env.run(asks, "async")
    assert isinstance(failed.value.__cause__, BadOption)
    assert ran == []


def test_at_most_once_and_a_transaction_do_not_go_together() -> None:
    with pytest.raises(BadOption, match="at_most_once"):
        activity(transaction=True, at_most_once=True)
    with pytest.raises(BadOption, match="at_most_once"):
        book.options(at_most_once=True)
    with pytest.raises(BadOption, match="transaction"):
        activity(transaction="yes")  # type: ignore[call-overload]  # what is tested


# Time


@activity(transaction=True, retry=ONCE)
def takes_its_time_in_one(query: str) -> None:
    db = resource(sqlite3.Connection)
    db.execute("update accounts set cents = 0")
    db.execute(query)


@workflow
async def waits_for(query: str, timeout: float) -> None:
    await takes_its_time_in_one.options(timeout=timeout)(query)


ENDLESS = "with recursive n(i) as (select 1 union all select i + 1 from n) select count(*) from n"


async def test_a_statement_that_takes_too_long_is_ended(path: Path, read: sqlite3.Connection) -> None:
    async with Perdure(f"sqlite:///{path}") as app:
        with pytest.raises(RunFailed, match=r"timeout of 0\.2 s"):
            await app.run(waits_for, ENDLESS, 0.2)
    assert cents(read, "ann") == 1000


async def test_one_that_holds_up_others_for_long_is_named(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "perdure.store"):
        async with Perdure(f"sqlite:///{path}") as app:
            with pytest.raises(RunFailed):
                await app.run(waits_for, ENDLESS, 0.2)
    assert [record for record in caplog.records if "'takes_its_time_in_one' held up every write" in record.getMessage()]


go_on = Signal("go on", str)


@activity(transaction=True, retry=ONCE)
def is_given_up() -> None:
    db = resource(sqlite3.Connection)
    db.execute("update accounts set cents = 0")
    while True:
        db.execute("select 1")


@workflow
async def gives_up() -> str:
    try:
        async with asyncio.timeout(0.1):
            await is_given_up()
    except TimeoutError:
        return "given up"
    return "done"


async def test_code_that_nobody_waits_for_is_rolled_back(path: Path, read: sqlite3.Connection) -> None:
    async with Perdure(f"sqlite:///{path}") as app:
        assert await app.run(gives_up) == "given up"
    assert cents(read, "ann") == 1000


# Where it runs


@workflow
async def pays_on_a_queue(account: str, cents: int) -> int:
    return await book.options(queue="bank")(account, cents)


async def test_it_runs_on_a_queue(path: Path, read: sqlite3.Connection) -> None:
    async with Perdure(f"sqlite:///{path}", queues=("default", "bank")) as app:
        assert await app.run(pays_on_a_queue, "ann", 10) == 990
    assert cents(read, "ann") == 990


async def test_it_runs_in_memory() -> None:
    async with Environment() as env:
        db = env.store.inner.transactions.db
        db.execute("create table accounts (id text primary key, cents int)")
        db.execute("create table log (key text unique)")
        db.execute("insert into accounts values ('ann', 1000)")
        assert await env.run(pays_twice) == [999, 997]


async def test_runs_beside_it_go_on(path: Path, read: sqlite3.Connection) -> None:
    async with Perdure(f"sqlite:///{path}") as app:
        runs = [await app.start(pays, "ann", 1) for _ in range(50)]
        assert sorted([await run.result() for run in runs]) == list(range(950, 1000))
    assert read.execute("select count(*) from log").fetchone() == (50,)


begun = threading.Event()


@activity(transaction=True, timeout=60)
def is_interrupted(account: str) -> str:
    db = resource(sqlite3.Connection)
    db.execute("update accounts set cents = cents - 1 where id = ?", (account,))
    is_first = not begun.is_set()
    begun.set()
    while is_first:
        db.execute("select 1")
    return "done"


@workflow
async def outlives_its_worker() -> str:
    return await is_interrupted("ann")


async def test_a_worker_that_ends_rolls_back_and_the_next_one_does_it(path: Path, read: sqlite3.Connection) -> None:
    async with Perdure(f"sqlite:///{path}", grace=0) as app:
        run = await app.start(outlives_its_worker)
        await asyncio.to_thread(begun.wait)
    async with Perdure(f"sqlite:///{path}") as app:
        assert await (await app.get(run.id)).result() == "done"
    assert cents(read, "ann") == 999


freed = threading.Event()


@activity(transaction=True, timeout=60)
def waits_to_be_freed() -> str:
    begun.set()
    freed.wait(20)
    return "done"


@workflow
async def is_abandoned() -> str:
    return await waits_to_be_freed()


async def test_the_end_of_code_whose_worker_was_dropped_troubles_nobody(path: Path) -> None:
    """Nobody waits for its outcome any more; the writer must go on all the same."""
    begun.clear()
    freed.clear()
    troubles: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: troubles.append(context))
    async with Perdure(f"sqlite:///{path}", grace=0) as app:
        run = await app.start(is_abandoned)
        await asyncio.to_thread(begun.wait)
        assert app._worker is not None
        app._worker.abandon()
        await asyncio.sleep(0)
        freed.set()
        await run.cancel()
    assert troubles == []
