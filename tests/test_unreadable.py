"""Runs that cannot be read: a row that a careless hand has spoilt is one run's trouble, and nobody else's."""

import asyncio
import logging
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest

from perdure import (
    Perdure,
    Retry,
    RunTerminated,
    RunUnreadable,
    Signal,
    Status,
    StoreError,
    StoreUnavailable,
    activity,
    sleep,
    workflow,
)
from perdure.stores.sqlite.checks.audit import audit_of
from perdure.testing import Environment
from perdure.views.run import moment

said = Signal("said", str)
NO_TEXT = "cast(x'7bff7d' as text)"
MINUTE = 60


@activity
async def spell(word: str) -> str:
    return word


@activity(retry=Retry(max_attempts=3, initial_interval=MINUTE))
async def spell_late(word: str) -> str:
    raise ValueError(word)


@workflow
async def reads_aloud(word: str) -> str:
    """Has an event, a failed attempt, a message nobody took and a time to wake when it is parked."""
    first = await spell(word)
    try:
        await spell_late(word)
    except ValueError:
        await sleep(MINUTE)
    return first + await spell(word)


@workflow
async def listens_long() -> str:
    return await said.receive()


class Spoilt:
    """One column of one run's row, event, message or attempt, spoilt and put back."""

    def __init__(self, table: str, column: str, value: str, check: str, told: str) -> None:
        self.table, self.column, self.value, self.check, self.told = table, column, value, check, told

    def __repr__(self) -> str:
        return f"{self.table}-{self.column}-{self.value}"

    def of(self, path: Path, id: str) -> str:
        """Which row it is of a run."""
        ((run_id,),) = read(path, f"select run_id from runs where workflow_id = '{id}'")
        self._where = f"rowid = (select min(rowid) from {self.table} where run_id = '{run_id}')"
        return str(run_id)

    def spoil(self, path: Path, id: str) -> str:
        run_id = self.of(path, id)
        ((self._before,),) = read(
            path, f"select quote(cast({self.column} as blob)) from {self.table} where {self._where}"
        )
        ((self._type,),) = read(path, f"select typeof({self.column}) from {self.table} where {self._where}")
        write(path, f"update {self.table} set {self.column} = {self.value} where {self._where}")
        return run_id

    def mend(self, path: Path) -> None:
        before = self._before if self._type == "null" else f"cast({self._before} as {self._type})"
        write(path, f"update {self.table} set {self.column} = {before} where {self._where}")


ALL = [
    Spoilt("events", "body", "'{'", "event_bodies", "event 2"),
    Spoilt("events", "body", "'[1]'", "event_bodies", "event 2"),
    Spoilt("events", "body", NO_TEXT, "event_bodies", "event 2"),
    Spoilt("events", "body", "null", "kept_values", "event 2"),
    Spoilt("events", "kind", "'ActivityDreamt'", "event_kinds", "ActivityDreamt"),
    Spoilt("events", "kind", NO_TEXT, "event_kinds", "event 2"),
    Spoilt("events", "place", NO_TEXT, "columns", "event 2"),
    Spoilt("events", "at", "'noon'", "columns", "event 2"),
    Spoilt("attempts", "failure", "'oops'", "attempts", "attempt 1"),
    Spoilt("attempts", "failure", NO_TEXT, "attempts", "attempt"),
    Spoilt("attempts", "next_at", "'soon'", "columns", "next_at"),
    Spoilt("inbox", "body", "'{\"name\":1}'", "message_bodies", "message 3"),
    Spoilt("inbox", "body", NO_TEXT, "message_bodies", "message 3"),
    Spoilt("inbox", "kind", "'DreamSent'", "message_kinds", "DreamSent"),
    Spoilt("inbox", "at", "'noon'", "columns", "message 3"),
    Spoilt("runs", "seed", "'x'", "columns", "seed"),
    Spoilt("runs", "input", NO_TEXT, "values", "input"),
    Spoilt("runs", "input", "'{oops'", "values", "input"),
    Spoilt("runs", "initial_attributes", "'{oops'", "values", "initial_attributes"),
    Spoilt("runs", "attributes", NO_TEXT, "values", "attributes"),
    Spoilt("runs", "messages", "'many'", "columns", "messages"),
    Spoilt("runs", "begun_at", "'noon'", "columns", "begun_at"),
    Spoilt("runs", "step", "x'00ff'", "columns", "step"),
]


def write(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        for statement in statements:
            assert db.execute(statement).rowcount == 1, statement


def read(path: Path, sql: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(path)) as db:
        return db.execute(sql).fetchall()


def held(path: Path, run_id: str) -> tuple[Any, ...]:
    ((*found,),) = read(path, f"select held, held_report, owner, wake_at, status from runs where run_id = '{run_id}'")
    return tuple(found)


def told_of(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    return [record for record in caplog.records if getattr(record, "event", None) == "run_held"]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "spoilt.db"


@pytest.fixture
def env(path: Path) -> Environment:
    return Environment(str(path))


async def park(env: Environment, *ids: str) -> None:
    """Runs with something in every table, parked, all to wake at once; their process is gone."""
    async with env:
        for id in ids:
            run = await env.start(reads_aloud.options(id=id, attributes={"of": id}), id)
            await run.signal("said", "unheard", id="unheard")
        await env.pass_time(30)
        for id in ids:
            assert (await (await env.app.get(id)).describe()).status is Status.SUSPENDED


IDS = ("a", "b", "bad", "c")


@pytest.mark.parametrize("spoilt", ALL, ids=repr)
async def test_a_run_that_cannot_be_read_is_held_and_all_others_go_on(
    env: Environment, path: Path, caplog: pytest.LogCaptureFixture, spoilt: Spoilt
) -> None:
    """They are claimed together; the one that could not be read kept all of them from coming to life."""
    await park(env, *IDS)
    run_id = spoilt.spoil(path, "bad")
    assert spoilt.check in {violation.check for violation in audit_of(path).violations}
    async with env:
        await env.pass_time(MINUTE)
        for id in ("a", "b", "c"):
            assert await env.result(await env.app.get(id)) == id * 2
        reason, report, owner, wake_at, status = held(path, run_id)
        assert (reason, owner, wake_at, status) == ("quarantine", None, None, "SUSPENDED")
        told = msgspec.json.decode(report)
        assert spoilt.told in told["trouble"]
        assert "`perdure audit`" in told["remedy"]
        assert "`perdure resume bad`" in told["remedy"]
        await env.pass_time(MINUTE)
        assert [record.getMessage().split(":")[0] for record in told_of(caplog)] == ["run 'bad' is held"]
        page = await env.app.list()
        assert {info.id for info in page} | {error.id for error in page.unreadable} == set(IDS)
        if spoilt.table != "runs":
            assert (await (await env.app.get("bad")).describe()).held == "quarantine"

        spoilt.mend(path)
        run = await env.app.get("bad")
        assert (await run.describe()).held == "quarantine"
        await run.resume()
        assert await env.result(run) == "badbad"
    assert audit_of(path).violations == ()


async def test_threads_and_all(path: Path) -> None:
    """As the file is used in earnest: reads on a thread of their own, writes on another."""
    async with Perdure(f"sqlite:///{path}", worker=False) as app:
        runs = [await app.start(reads_twice.options(id=f"run-{number}"), "ab") for number in range(30)]
    write(path, "update runs set seed = 'x' where workflow_id = 'run-7'")
    write(path, f"update runs set input = {NO_TEXT} where workflow_id = 'run-8'")
    async with Perdure(f"sqlite:///{path}", grace=0.1) as app:
        for number in set(range(30)) - {7, 8}:
            assert await (await app.get(f"run-{number}")).result(timeout=120) == "abab"
    assert {held(path, runs[number].run_id)[0] for number in (7, 8)} == {"quarantine"}


@pytest.mark.parametrize("spoilt", [each for each in ALL if each.table == "inbox"], ids=repr)
async def test_a_message_that_cannot_be_read_holds_its_run_alone(
    path: Path, caplog: pytest.LogCaptureFixture, spoilt: Spoilt
) -> None:
    """It comes to a run that lives; the watch that reads it reads for all runs of the process."""
    async with Environment(str(path)) as env, Environment(str(path), clock=env.clock, worker=False) as client:
        for id in ("bad", "good"):
            await env.start(listens_long.options(id=id))
        await env.settle()

        def swap() -> None:
            spoilt.spoil(path, "bad")

        client.store.after_commit = lambda _: swap()
        await (await client.app.get("bad")).signal(said, "garbled")
        client.store.after_commit = lambda _: None
        good = await client.app.get("good")
        await good.signal(said, "clear")
        await env.pass_time(1)
        assert await env.result(await env.app.get("good")) == "clear"
        run = await env.app.get("bad")
        info = await run.describe()
        assert (info.held, info.status) == ("quarantine", Status.SUSPENDED)
        assert "message 1" in str(info.held_report)
        assert [record.getMessage().split(":")[0] for record in told_of(caplog)] == ["run 'bad' is held"]
        assert not env.worker.is_live(run.run_id)

        spoilt.mend(path)
        await run.resume()
        assert await env.result(run) == "garbled"


async def test_a_message_is_found_garbled_when_its_run_reads_its_inbox(env: Environment, path: Path) -> None:
    """Two came in one moment: the run is told that there are more than it knows of, and reads them all."""
    async with env:
        run = await env.start(listens_long.options(id="bad"))
        other = await env.start(listens_long.options(id="good"))
        await env.settle()
        write(
            path,
            f"""insert into inbox (namespace, run_id, message_id, kind, body, at)
                values ('main', '{run.run_id}', 'odd', 'SignalSent', {NO_TEXT}, 1)""",
            f"update runs set messages = messages + 1 where run_id = '{run.run_id}'",
        )
        await run.signal(said, "second")
        await env.settle()
        assert (await run.describe()).held == "quarantine"
        await other.signal(said, "clear")
        assert await env.result(other) == "clear"


@pytest.mark.parametrize(
    "column", ["run_id = cast(x'ff00' as text)", "run_id = x'00'", "run_id = null", "priority = 'high'"]
)
async def test_a_run_that_no_claim_can_name_does_not_stop_claims(
    env: Environment, path: Path, caplog: pytest.LogCaptureFixture, column: str
) -> None:
    """It is the ripest of all, and no other was claimed for as long as it was there."""
    await park(env, *IDS)
    write(path, f"update runs set wake_at = 1, {column} where workflow_id = 'bad'")
    assert "columns" in {violation.check for violation in audit_of(path).violations}
    async with env:
        await env.pass_time(2 * MINUTE)
        for id in ("a", "b", "c"):
            assert await env.result(await env.app.get(id)) == id * 2
        await env.pass_time(MINUTE)
        assert len(told_of(caplog)) == 1
        page = await env.app.list()
        assert {info.id for info in page} == {"a", "b", "c"}
        assert [error.id for error in page.unreadable] == ["bad"]
    ((reason, wake_at),) = read(path, "select held, wake_at from runs where workflow_id = 'bad'")
    assert (reason, wake_at) == ("quarantine", None)


@pytest.mark.parametrize("deaths", ["'oops'", NO_TEXT, "'[{}]'", "x'00'"])
@pytest.mark.parametrize("host", ["'h'", NO_TEXT])
async def test_deaths_that_cannot_be_read_keep_nobody_from_taking_over(
    env: Environment, path: Path, deaths: str, host: str
) -> None:
    """The runs of a dead worker stayed with it for ever, because of what was noted of one of them."""
    await env.open()
    run = await env.start(listens_long.options(id="bad"))
    await env.start(listens_long.options(id="good"))
    await env.settle()
    env.bury()
    write(
        path,
        f"update runs set deaths = {deaths}, losses = 3 where workflow_id = 'bad'",
        f"update workers set host = {host}, queues = {NO_TEXT}, pid = 'x'",
    )
    async with env:
        for id in ("bad", "good"):
            found = await env.app.get(id)
            await found.signal(said, id)
            assert await env.result(found) == id
    # It got on, and nothing is held against it any more.
    assert read(path, f"select losses, deaths from runs where run_id = '{run.run_id}'") == [(0, None)]


async def test_a_row_that_cannot_be_read_is_no_reason_to_try_again(env: Environment, path: Path) -> None:
    """Text that is no text was told as a database that is unavailable just now, and asked for over and over."""
    async with env:
        run = await env.start(listens_long.options(id="bad"))
        await env.start(listens_long.options(id="good"))
        await env.pass_time(30)
        write(path, f"update runs set step = {NO_TEXT} where workflow_id = 'bad'")
        for question in (run.describe, run.result, run.resume, (await env.app.get("bad")).describe):
            with pytest.raises(RunUnreadable, match="run 'bad' cannot be read: the step in its row") as told:
                await question()
            assert not isinstance(told.value, StoreUnavailable)
            assert (told.value.run_id, told.value.id) == (run.run_id, "bad")
        with pytest.raises(StoreError, match="run 'bad' cannot be read: the step in its row"):
            await env.start(listens_long.options(id="bad"))
        assert await env.run(reads_twice, "x") == "xx"
        pages = [await env.app.list(limit=1)]
        while pages[-1].cursor is not None:
            pages.append(await env.app.list(limit=1, after=pages[-1].cursor))
        assert sorted(info.workflow for page in pages for info in page) == ["listens_long", "reads_twice"]
        assert [error.id for page in pages for error in page.unreadable] == ["bad"]


async def test_who_waits_for_an_end_that_cannot_be_read_is_told_so(env: Environment, path: Path) -> None:
    """And those that wait for the ends of others are told of these, whichever comes first."""
    async with env, Environment(str(path), clock=env.clock, worker=False) as client:
        runs = {id: await env.start(listens_long.options(id=id)) for id in ("a", "bad", "c")}
        waits = {id: asyncio.ensure_future((await client.app.get(id)).result()) for id in runs}
        await client.settle()
        for run in runs.values():
            await run.signal(said, "over")
            await env.settle()
        write(path, "update runs set status = 'FAILED', outcome = '{}' where workflow_id = 'bad'")
        assert "outcomes" in {violation.check for violation in audit_of(path).violations}
        await client.pass_time(2)
        assert [await waits["a"], await waits["c"]] == ["over", "over"]
        with pytest.raises(RunUnreadable, match="its outcome cannot be read"):
            await waits["bad"]
        with pytest.raises(RunUnreadable, match="its outcome cannot be read"):
            await (await client.app.get("bad")).result()


async def test_a_result_that_is_no_json_is_told_to_be_one(env: Environment, path: Path) -> None:
    """It was handed on as it stood, and whoever read it met an error of the decoder that named nothing."""
    async with env:
        run = await env.start(reads_twice.options(id="bad"), "x")
        assert await env.result(run) == "xx"
        write(path, "update runs set outcome = '{oops' where workflow_id = 'bad'")
        again = await env.app.get("bad")
        with pytest.raises(RunUnreadable, match="run 'bad' cannot be read: its outcome cannot be read as that"):
            await again.result()
        with pytest.raises(RunUnreadable, match="its outcome cannot be read as that"):
            assert [event async for event in again.events()] == []


async def test_a_run_that_is_overdue_and_unreadable_keeps_no_other_from_its_end(env: Environment, path: Path) -> None:
    async with Environment(str(path), clock=env.clock, worker=False) as client:
        for id in ("a", "bad", "c"):
            await client.start(
                listens_long.options(id=id, timeout=MINUTE),
            )
        write(path, "update runs set seed = 'x' where workflow_id = 'bad'")
        await client.pass_time(2 * MINUTE)
        for id in ("a", "c"):
            assert (await (await client.app.get(id)).describe()).status is Status.TIMED_OUT


async def test_a_history_is_read_up_to_what_cannot_be_read(env: Environment, path: Path) -> None:
    """Whoever looks into it sees how far it had come."""
    await park(env, "bad")
    write(path, "update events set kind = 'ActivityDreamt' where seq = 2")
    async with env:
        history = (await env.app.get("bad")).events()
        assert (await anext(history)).kind == "RunStarted"
        with pytest.raises(RunUnreadable, match="event 2 cannot be read: its kind is 'ActivityDreamt'"):
            await anext(history)


@workflow
async def reads_twice(word: str) -> str:
    return await spell(word) + await spell(word)


@workflow
async def has_a_listener() -> str:
    try:
        return await listens_long.options(id="bad")()
    except RunTerminated as error:
        return str(error.reason)


async def test_a_run_whose_row_cannot_be_read_can_be_ended_and_its_parent_is_told(env: Environment, path: Path) -> None:
    """It may never be corrected; whoever waits for it must be able to go on."""
    async with env:
        parent = await env.start(has_a_listener.options(id="parent"))
        await env.pass_time(30)
        write(path, f"update runs set step = {NO_TEXT}, seed = 'x', input = x'00' where workflow_id = 'bad'")
        await (await env.app.get("bad")).terminate("it is spoilt")
        assert await env.result(parent) == "it is spoilt"
        with pytest.raises(RunUnreadable):
            await (await env.app.get("bad")).terminate("once more")


@pytest.mark.parametrize("ms", [2**63 - 1, -(2**63)])
def test_a_time_beyond_all_times_is_told_all_the_same(ms: int) -> None:
    """A spoilt time of one event must not keep its history from being shown."""
    assert moment(ms).year in {1, 9999}
