"""Transactional activities on Postgres: user code on a connection of its own, committed with its outcome."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import Any

import asyncpg
import psycopg
import pytest

from perdure import Perdure, ResourceNotFound, Retry, RunFailed, TransactionEnded, activity, attempt, resource, workflow
from perdure.errors import BadValue, StoreUnavailable
from perdure.stores.answers import Committed, Moved
from perdure.stores.operations import RaiseEpoch
from perdure.testing import Environment
from perdure.testing.faults import Crash, Fault

ONCE = Retry(max_attempts=1)
TWICE = Retry(max_attempts=2, initial_interval=1)
ran: list[str] = []

MAKE = """
drop table if exists accounts, booked;
create table accounts (id text primary key, cents int check (cents >= 0));
create table booked (key text unique deferrable initially deferred);
insert into accounts values ('ann', 1000), ('bob', 1000)
"""


@pytest.fixture(autouse=True)
def _forget() -> None:
    ran.clear()


@pytest.fixture
def db(empty_url: str) -> Iterator[psycopg.Connection[tuple[Any, ...]]]:
    """The database as its user sees it, with two accounts."""
    with psycopg.connect(empty_url.partition("?")[0], autocommit=True) as db:
        db.execute(MAKE)
        yield db


def cents(db: psycopg.Connection[tuple[Any, ...]], account: str) -> object:
    found = db.execute("select cents from accounts where id = %s", (account,)).fetchone()
    return None if found is None else found[0]


def booked(db: psycopg.Connection[tuple[Any, ...]]) -> int:
    return len(db.execute("select key from booked").fetchall())


@activity(transaction=True)
async def pg_book(account: str, cents: int) -> int:
    ran.append(account)
    db = resource(asyncpg.Connection)
    await db.execute("update accounts set cents = cents - $2 where id = $1", account, cents)
    await db.execute("insert into booked values ($1)", attempt().key)
    async with db.transaction():
        return int(await db.fetchval("select cents from accounts where id = $1", account))


@activity(transaction=True)
def pg_book_in_thread(account: str, cents: int) -> int:
    ran.append(account)
    db = resource(psycopg.Connection)
    db.execute("update accounts set cents = cents - %s where id = %s", (cents, account))
    db.execute("insert into booked values (%s)", (attempt().key,))
    with db.transaction():
        return int(db.execute("select cents from accounts where id = %s", (account,)).fetchall()[0][0])


@workflow
async def pg_pays(account: str, *, in_thread: bool = False) -> list[int]:
    take = pg_book_in_thread if in_thread else pg_book
    return [await take(account, 1), await take(account, 2)]


@workflow
async def pg_pays_at_once() -> list[int]:
    one, two = pg_book("ann", 1), pg_book_in_thread("bob", 2)
    return list(await asyncio.gather(one, two, pg_book("bob", 3), pg_book_in_thread("ann", 4)))


@pytest.mark.parametrize("in_thread", [False, True])
async def test_rows_and_outcome_are_there(
    empty_url: str, db: psycopg.Connection[tuple[Any, ...]], *, in_thread: bool
) -> None:
    async with Environment(empty_url) as env:
        assert await env.run(pg_pays, "ann", in_thread=in_thread) == [999, 997]
    assert (cents(db, "ann"), booked(db)) == (997, 2)


async def test_several_of_one_run_are_numbered_without_gaps(
    empty_url: str, db: psycopg.Connection[tuple[Any, ...]]
) -> None:
    async with Environment(empty_url) as env:
        run = await env.start(pg_pays_at_once)
        await env.result(run)
        assert [event.seq for event in await env.events(run.id)] == [1, 2, 3, 4, 5, 6]
    assert (cents(db, "ann"), cents(db, "bob"), booked(db)) == (995, 995, 4)


@pytest.mark.parametrize("fault", list(Fault))
@pytest.mark.parametrize(("number", "in_thread"), [(6, False), (7, True), (7, False), (8, True), (9, False)])
async def test_a_fault_at_any_commit_books_once(
    empty_url: str, db: psycopg.Connection[tuple[Any, ...]], number: int, fault: Fault, *, in_thread: bool
) -> None:
    """Neither a crash nor an answer that is lost books twice, or records what was not booked."""
    async with Environment(empty_url) as env:
        await env.crash((number, fault))
        while True:
            try:
                run = await env.alive(env.app.start(pg_pays.options(id="pays"), "ann", in_thread=in_thread))
                assert await env.result(run) == [999, 997]
                break
            except (Crash, StoreUnavailable):
                if env.has_died:
                    await env.crash()
    assert (cents(db, "ann"), booked(db)) == (997, 2)


@activity(transaction=True, retry=TWICE)
async def pg_fails_at_first() -> int:
    await resource(asyncpg.Connection).execute("update accounts set cents = cents - 1")
    if attempt().number == 1:
        raise ConnectionError("down")
    return attempt().number


@activity(transaction=True, retry=ONCE)
async def pg_breaks_a_rule_at_the_commit() -> None:
    db = resource(asyncpg.Connection)
    await db.execute("update accounts set cents = 0")
    await db.execute("insert into booked values ('same'), ('same')")


@activity(transaction=True, retry=ONCE)
async def pg_swallows_an_error() -> None:
    db = resource(asyncpg.Connection)
    with pytest.raises(asyncpg.CheckViolationError):
        await db.execute("update accounts set cents = -1")


@activity(transaction=True, retry=ONCE)
async def pg_returns_what_cannot_be_kept() -> object:
    await resource(asyncpg.Connection).execute("update accounts set cents = 0")
    return object()


@activity(transaction=True, retry=ONCE)
async def pg_asks_for_the_other_driver() -> None:
    resource(psycopg.Connection)


@workflow
async def pg_does(what: str) -> object:
    found: dict[str, Callable[..., Any]] = {
        "fails at first": pg_fails_at_first,
        "breaks a rule": pg_breaks_a_rule_at_the_commit,
        "swallows": pg_swallows_an_error,
        "cannot be kept": pg_returns_what_cannot_be_kept,
        "asks": pg_asks_for_the_other_driver,
    }
    return await found[what]()


async def test_a_failed_attempt_leaves_no_rows(empty_url: str, db: psycopg.Connection[tuple[Any, ...]]) -> None:
    async with Environment(empty_url) as env:
        assert await env.run(pg_does, "fails at first") == 2
    assert cents(db, "ann") == 999


@pytest.mark.parametrize(
    ("what", "error"),
    [
        ("breaks a rule", "duplicate key"),
        ("swallows", "current transaction is aborted"),
        ("cannot be kept", "returns_what_cannot_be_kept"),
        ("asks", r"resource\(asyncpg\.Connection\)"),
    ],
)
async def test_what_fails_leaves_no_rows(
    empty_url: str, db: psycopg.Connection[tuple[Any, ...]], what: str, error: str
) -> None:
    async with Environment(empty_url) as env:
        with pytest.raises(RunFailed, match=error) as failed:
            await env.run(pg_does, what)
    assert what != "asks" or isinstance(failed.value.__cause__, ResourceNotFound)
    assert what != "cannot be kept" or isinstance(failed.value.__cause__, BadValue)
    assert (cents(db, "ann"), booked(db)) == (1000, 0)


@activity(transaction=True, retry=TWICE)
async def pg_ends_it(how: str) -> None:
    ran.append(how)
    db = resource(asyncpg.Connection)
    if how == "close":
        await db.close()
    else:
        await db.execute(how)


@activity(transaction=True, retry=TWICE)
def pg_ends_it_in_thread(how: str) -> None:
    ran.append(how)
    db = resource(psycopg.Connection)
    getattr(db, how)()
    if how == "rollback":
        db.execute("select 1")


@workflow
async def pg_lets_it(how: str, *, in_thread: bool) -> None:
    await (pg_ends_it_in_thread if in_thread else pg_ends_it)(how)


@pytest.mark.parametrize(
    ("how", "in_thread"),
    [
        ("commit", False),
        ("rollback; begin", False),
        ("close", False),
        ("commit", True),
        ("rollback", True),
        ("close", True),
    ],
)
async def test_ending_the_transaction_is_noticed(
    empty_url: str, db: psycopg.Connection[tuple[Any, ...]], how: str, *, in_thread: bool
) -> None:
    async with Environment(empty_url) as env:
        with pytest.raises(RunFailed, match="must not end its transaction") as failed:
            await env.run(pg_lets_it, how, in_thread=in_thread)
        assert isinstance(failed.value.__cause__, TransactionEnded)
        assert ran == [how]
        assert await env.run(pg_pays, "ann", in_thread=in_thread) == [999, 997]


@activity(transaction=True, retry=ONCE, timeout=0.3)
async def pg_never_returns() -> None:
    await resource(asyncpg.Connection).execute("update accounts set cents = 0")
    await asyncio.Event().wait()


@workflow
async def pg_waits() -> None:
    await pg_never_returns()


async def test_one_that_takes_too_long_leaves_no_rows(empty_url: str, db: psycopg.Connection[tuple[Any, ...]]) -> None:
    async with Perdure(empty_url) as app:
        with pytest.raises(RunFailed, match=r"timeout of 0\.3 s"):
            await app.run(pg_waits)
        db.execute("update accounts set cents = 7 where id = 'ann'")
    assert cents(db, "ann") == 7


held, let_go = threading.Event(), threading.Event()


@activity(transaction=True)
async def pg_holds_its_transaction() -> None:
    await resource(asyncpg.Connection).execute("update accounts set cents = 0 where id = 'bob'")
    held.set()
    await asyncio.to_thread(let_go.wait)


@workflow
async def pg_holds() -> None:
    await pg_holds_its_transaction()


async def test_others_commit_beside_an_open_transaction(
    empty_url: str, db: psycopg.Connection[tuple[Any, ...]]
) -> None:
    async with Perdure(empty_url) as app:
        run = await app.start(pg_holds)
        await asyncio.to_thread(held.wait)
        assert await app.run(pg_pays, "ann") == [999, 997]
        let_go.set()
        await run.result()
    assert cents(db, "bob") == 0


async def test_it_runs_on_a_queue(empty_url: str, db: psycopg.Connection[tuple[Any, ...]]) -> None:
    async with Perdure(empty_url, queues=("default", "bank")) as app:
        assert await app.run(pg_pays_on_a_queue) == 999
    assert booked(db) == 1


@workflow
async def pg_pays_on_a_queue() -> int:
    return await pg_book.options(queue="bank")("ann", 1)


is_taken_over: list[asyncio.Event] = []


@activity(transaction=True)
async def pg_is_taken_over() -> int:
    await resource(asyncpg.Connection).execute("update accounts set cents = cents - 1 where id = 'ann'")
    ran.append("attempt")
    if len(ran) == 1:
        await is_taken_over[-1].wait()
    return len(ran)


@workflow
async def pg_loses_its_lease() -> int:
    return await pg_is_taken_over()


async def test_a_worker_that_lost_its_lease_commits_nothing(
    empty_url: str, db: psycopg.Connection[tuple[Any, ...]]
) -> None:
    """The epoch is looked at in the transaction itself: code that was begun under an older one leaves no rows."""
    is_taken_over.append(asyncio.Event())
    async with Environment(empty_url) as env:
        run = await env.start(pg_loses_its_lease)
        while not ran:  # noqa: ASYNC110 - it is about to be there
            await asyncio.sleep(0)
        assert await env.elsewhere([RaiseEpoch(env.engine.worker_id, 1)]) == Committed({})
        is_taken_over[-1].set()
        assert await env.result(run) == 2
    assert cents(db, "ann") == 999


# Commits that take a while

HOLD_COMMITS = """
create or replace function hold() returns trigger language plpgsql as
    'begin perform pg_advisory_xact_lock(77); return null; end';
create constraint trigger held after insert on booked deferrable initially deferred
    for each row execute function hold();
select pg_advisory_lock(77)
"""
HELD = "select pid from pg_locks where locktype = 'advisory' and objid = 77 and not granted"


@workflow
async def pg_pays_once() -> int:
    return await pg_book("ann", 1)


async def held_commit(db: psycopg.Connection[tuple[Any, ...]]) -> int:
    """The backend that is in the middle of the commit of an activity: all it had to write is written."""
    while not (found := db.execute(HELD).fetchall()):  # noqa: ASYNC110 - it is about to be there
        await asyncio.sleep(0)
    return int(found[0][0])


async def test_nobody_takes_a_worker_over_between_its_fence_and_its_commit(
    empty_url: str, db: psycopg.Connection[tuple[Any, ...]]
) -> None:
    """Else its run would go on elsewhere, and its rows be committed all the same."""
    db.execute(HOLD_COMMITS)
    async with Environment(empty_url) as env:
        run = await env.start(pg_pays_once)
        await held_commit(db)
        (worker,) = await env.store.reads.workers()
        outcome = await env.elsewhere([RaiseEpoch(worker.worker_id, worker.epoch, worker.lease_until)])
        db.execute("select pg_advisory_unlock(77)")
        assert outcome == Committed({0: Moved()})
        assert await env.result(run) == 999
    assert (cents(db, "ann"), booked(db)) == (999, 1)


async def test_a_commit_whose_connection_is_lost_is_settled_by_looking(
    empty_url: str, db: psycopg.Connection[tuple[Any, ...]]
) -> None:
    """Nobody knows what became of it, so that it is no failure of the activity's, and counts as no attempt."""
    db.execute(HOLD_COMMITS)
    async with Environment(empty_url) as env:
        run = await env.start(pg_pays_once)
        db.execute("select pg_terminate_backend(%s)", (await held_commit(db),))
        db.execute("select pg_advisory_unlock(77)")
        assert await env.result(run) == 999
        assert "attempts" not in (await env.events(run.id))[1].body
    assert (cents(db, "ann"), booked(db), ran) == (999, 1, ["ann", "ann"])
