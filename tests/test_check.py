"""Check and replay: whether open runs fit code before it is deployed, with nothing written and nothing run."""

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

from perdure import BadFilter, BadOption, Deferred, Perdure, Signal, Workflow, activity, patched, sleep
from perdure.app.checking import trace_of
from perdure.authoring.options import WorkflowOptions
from perdure.stores.postgres.address import address_of
from perdure.testing import Environment
from perdure.worker.check import check
from perdure.worker.check.trace import trace

go = Signal("go", int)
link = Deferred("link", int)
ran: list[str] = []


@activity
async def packs(what: str) -> str:
    ran.append(what)
    return f"packed {what}"


@activity
async def ships(what: str) -> str:
    ran.append(what)
    return f"shipped {what}"


async def original(what: str) -> str:
    packed = await packs(what)
    token = link.token()
    await go.receive()
    return await ships(packed + token)


async def swapped(what: str) -> str:
    shipped = await ships(what)
    await go.receive()
    return await packs(shipped)


async def with_another_parameter(what: str, how: str) -> str:
    return what + how


async def with_a_patch(what: str) -> str:
    if patched("ship first"):
        return await ships(what)
    return await original(what)


async def that_spins(what: str) -> str:
    raise SystemExit(what)


async def of_many(what: str) -> str:
    for _ in range(4):
        await packs(what)
    return str(await go.receive())


async def of_many_others(what: str) -> str:
    for _ in range(3):
        await packs(what)
    return await ships(what)


async def with_branches(what: str) -> str:
    await packs(what)
    first, second = await asyncio.gather(packs("left"), waits_right())
    await sleep(60)
    return f"{first} {second}"


async def waits_right() -> int:
    return await go.receive()


def as_workflow(fn: Any, name: str = "checked") -> Workflow[..., Any]:
    """A version of the one workflow whose code changes."""
    return Workflow(fn, name, WorkflowOptions())


async def begin(env: Environment, *ids: str, fn: Any = original) -> None:
    """Runs that wait for their signal."""
    known = as_workflow(fn)
    env.workflows = [known]
    async with env:
        for id in ids:
            await env.start(known.options(id=id), id)
        await env.pass_time(60)
    ran.clear()


def client_with(env: Environment, fn: Any) -> Environment:
    return Environment(env.path, clock=env.clock, worker=False, workflows=[as_workflow(fn)])


@pytest.mark.parametrize("fn", [original, with_a_patch])
async def test_runs_that_fit_are_counted_and_nothing_of_them_runs(env: Environment, fn: Any) -> None:
    await begin(env, "a", "b", "c")
    async with client_with(env, fn) as client:
        found = await client.app.check(as_workflow(fn))
    (told,) = found.workflows
    assert found.is_fit
    assert (told.workflow, told.checked, told.fit, told.misfits) == ("checked", 3, 3, ())
    assert ran == []


async def test_code_that_does_not_fit_is_told_with_both_sides(env: Environment) -> None:
    await begin(env, *(f"r-{n:02}" for n in range(12)))
    async with client_with(env, swapped) as client:
        found = await client.app.check(as_workflow(swapped))
        newest = await client.app.check(as_workflow(swapped), limit=3)
        one = await client.app.check("checked", where="id = :id", params={"id": "r-03"})
    (told,) = found.workflows
    (misfit,) = told.misfits
    assert not found.is_fit
    assert (told.checked, told.fit, told.held) == (12, 0, 12)
    assert misfit.event == "event 2 is ActivityCompleted at packs"
    assert (misfit.code_waits_at, misfit.runs, len(misfit.ids)) == (("ships",), 12, 10)
    assert newest.workflows[0].checked == 3
    assert one.workflows[0].misfits[0].ids == ("r-03",)
    assert ran == []


@pytest.mark.parametrize("count", [3, 4])
async def test_runs_and_events_behind_the_first_page_are_looked_at(
    env: Environment, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A deploy is as dangerous to the oldest run, and to the last event of a long one."""
    monkeypatch.setattr(check, "RUNS_PAGE", 2)
    monkeypatch.setattr(check, "EVENTS_PAGE", 2)
    await begin(env, *(f"r-{n}" for n in range(count)), fn=of_many)
    async with client_with(env, of_many_others) as client:
        found = await client.app.check(as_workflow(of_many_others))
        some = await client.app.check(as_workflow(of_many_others), limit=3)
    (told,) = found.workflows
    (misfit,) = told.misfits
    assert (told.checked, told.held, misfit.event) == (count, count, "event 5 is ActivityCompleted at packs#4")
    assert sorted(misfit.ids) == [f"r-{n}" for n in range(count)]
    assert len({*some.workflows[0].misfits[0].ids}) == some.workflows[0].checked == 3


async def test_arguments_that_no_longer_fit_the_signature_are_told_apart(env: Environment) -> None:
    """Of runs that have not begun as well: they would be held as soon as they do."""
    await begin(env, "begun")
    async with client_with(env, with_another_parameter) as client:
        await client.start(as_workflow(original).options(id="not begun"), "x")
        found = await client.app.check(as_workflow(with_another_parameter))
    (told,) = found.workflows
    assert (told.checked, told.arguments, told.held) == (2, 2, 0)
    assert "the run's input does not fit the code" in told.misfits[0].trouble


async def test_without_a_name_all_open_runs_are_looked_at_also_those_without_code(env: Environment) -> None:
    await begin(env, "a")
    async with Environment(
        env.path, clock=env.clock, worker=False, workflows=[as_workflow(original, "other")]
    ) as client:
        found = await client.app.check()
        (told,) = found.workflows
        assert (told.workflow, told.checked, told.no_code, told.misfits[0].ids) == ("checked", 1, 1, ("a",))
        assert (await client.app.check("other")).is_fit


async def test_code_that_ends_the_process_harms_nobody(env: Environment) -> None:
    await begin(env, "a")
    async with client_with(env, that_spins) as client:
        found = await client.app.check(as_workflow(that_spins))
    assert found.workflows[0].held == 1


async def test_a_run_that_has_ended_is_not_asked_whether_it_goes_on(env: Environment) -> None:
    """Nobody will ever replay it; a deploy need not wait for code of years ago."""
    await begin(env, "open", "ended")
    async with client_with(env, swapped) as client:
        await (await client.app.get("ended")).terminate()
        found = await client.app.check(as_workflow(swapped))
    assert [(each.checked, each.misfits[0].ids) for each in found.workflows] == [(1, ("open",))]


async def test_a_run_that_cannot_be_read_is_one_of_many(quick_path: Path) -> None:
    env = Environment(str(quick_path / "spoilt.db"))
    await begin(env, "a", "b")
    with closing(sqlite3.connect(str(env.path))) as db:
        db.execute("update events set body = 'spoilt' where run_id = (select run_id from runs where workflow_id = 'a')")
        db.commit()
    async with client_with(env, original) as client:
        (told,) = (await client.app.check(as_workflow(original))).workflows
    assert (told.fit, told.unreadable, told.misfits[0].ids) == (1, 1, ("a",))


@pytest.mark.parametrize(
    ("given", "error"),
    [({"limit": 0}, BadOption), ({"params": {"x": 1}}, BadOption), ({"where": "nothing ("}, BadFilter)],
)
async def test_what_makes_no_sense_is_refused(env: Environment, given: dict[str, Any], error: type[Exception]) -> None:
    async with env:
        with pytest.raises(error):
            await env.app.check(**given)
        with pytest.raises(BadOption):
            await env.app.check(original)  # type: ignore[arg-type]  # no workflow


async def test_a_check_writes_nothing_beside_a_worker(quick_path: Path) -> None:
    """Who checks before every deploy must not touch what is at work."""
    env = Environment(str(quick_path / "busy.db"), workflows=[as_workflow(original)])
    async with env:
        for n in range(30):
            await env.start(as_workflow(original).options(id=f"r-{n}"), "x")
        await env.pass_time(5)
        async with client_with(env, original) as client:
            with closing(sqlite3.connect(str(env.path))) as db:
                before = db.execute("pragma data_version").fetchone()
                assert (await client.app.check(as_workflow(original))).workflows[0].fit == 30
                assert db.execute("pragma data_version").fetchone() == before


async def test_a_check_writes_nothing_on_postgres(empty_url: str) -> None:
    env = Environment(empty_url)
    await begin(env, "a", "b")
    address = address_of(empty_url)
    async with client_with(env, original) as client:
        with psycopg.connect(address.dsn, autocommit=True) as db:
            at = "select max(xmin::text::bigint), max(xmax::text::bigint), count(*) from {}.runs"
            sql = at.format(address.schema).encode()
            before = db.execute(sql).fetchone()
            assert (await client.app.check(as_workflow(original))).is_fit
            after = db.execute(sql).fetchone()
    assert before == after


async def test_a_replay_tells_the_line_of_each_event_and_where_branches_wait(env: Environment) -> None:
    await begin(env, "a", fn=with_branches)
    async with client_with(env, with_branches) as client:
        run = await client.app.get("a")
        told = await trace(client.engine, "main", run.run_id, as_workflow(with_branches))
    first = with_branches.__code__.co_firstlineno
    right = waits_right.__code__.co_firstlineno
    lines = [None if each.line is None else Path(each.line).name for each in told.events]
    assert [each.event.kind for each in told.events] == ["RunStarted", "ActivityCompleted", "ActivityCompleted"]
    assert lines == [f"test_check.py:{first + n}" for n in (0, 1, 2)]
    (wait,) = told.waits
    assert (wait.kind, Path(wait.line or "").name) == ("signal", f"test_check.py:{right + 1}")
    assert (told.trouble, told.has_ended, ran) == (None, False, [])


async def test_a_run_that_has_ended_is_replayed_to_its_end(env: Environment) -> None:
    env.workflows = [as_workflow(original)]
    async with env:
        run = await env.start(as_workflow(original).options(id="a"), "x")
        await run.signal(go, 1)
        await env.result(run)
        ran.clear()
        told = await trace(env.engine, "main", run.run_id, as_workflow(original))
        assert [each.event.kind for each in told.events][-1] == "RunCompleted"
        assert (told.has_ended, told.waits, told.trouble, ran) == (True, (), None, [])
        changed = await trace(env.engine, "main", run.run_id, as_workflow(swapped))
        assert "event 2 is ActivityCompleted at 'packs'" in (changed.trouble or "")
        assert [wait.place for wait in changed.waits] == ["ships"]


def test_the_bridge_has_the_check(tmp_path: Path) -> None:
    with Perdure(f"sqlite:///{tmp_path}/sync.db", workflows=[as_workflow(original)]).sync() as app:
        assert app.check().workflows == ()
    assert trace_of.__doc__
