"""Many at once: exactly the runs that were there and still match, each once, whatever happens in between."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from perdure import BadFilter, BadOption, Bulk, Run, RunCancelled, Signal, Status, activity, workflow
from perdure.engine.steering import bulk as bulk_part
from perdure.engine.steering import pace
from perdure.stores.rules import finding
from perdure.testing import Environment

nod = Signal("nod", int)
fails = [True]


@activity
async def may_fail() -> str:
    if fails[0]:
        raise ValueError("no")
    return "fine"


@activity(queue="nobody")
async def bulk_far_away() -> str:
    return "far"


@workflow
async def bulk_nods() -> int:
    return await nod.receive()


@workflow
async def tries() -> str:
    return await may_fail()


@workflow
async def goes_far() -> str:
    return await bulk_far_away()


@pytest.fixture(autouse=True)
def _small_bites(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(finding, "LARGEST_BITE", 6)
    monkeypatch.setattr(pace, "LARGE", 3)
    monkeypatch.setattr(pace, "SMALL", 3)
    fails[0] = True


async def some(env: Environment, count: int, **attributes: Any) -> list[Run[int]]:
    return [await env.start(bulk_nods.options(attributes={"tenant": "acme"} | attributes)) for _ in range(count)]


async def statuses(runs: list[Run[Any]]) -> list[str]:
    return [(await run.describe()).held or (await run.describe()).status for run in runs]


@pytest.mark.parametrize("is_parked", [True, False])
async def test_all_that_match_are_cancelled_and_no_other(env: Environment, is_parked: bool) -> None:
    """Over several bites and pages, at their borders too."""
    async with env:
        runs, others = await some(env, 20), await some(env, 3, tenant="other")
        await env.pass_time(20 if is_parked else 1)
        seen: list[Bulk] = []
        found = await env.app.cancel_all(
            where="tenant = :t", params={"t": "acme"}, reason="moved", progress=seen.append
        )
        assert found == Bulk(20, 20, 0, {})
        assert [(each.matched, each.done) for each in seen] == [(20, done) for done in (3, 6, 9, 12, 15, 18, 20)]
        for run in runs:
            with pytest.raises(RunCancelled, match="moved"):
                await env.result(run)
        assert {status in {Status.RUNNING, Status.SUSPENDED} for status in await statuses(others)} == {True}
        assert await env.app.cancel_all(where="tenant = 'acme'") == Bulk(0, 0, 0, {})


async def test_pause_and_resume_all(env: Environment) -> None:
    async with env:
        runs = await some(env, 8)
        await env.pass_time(20)
        assert (await env.app.pause_all(where="true", reason="stocktaking")).done == 8
        assert await statuses(runs) == ["paused"] * 8
        assert (await env.app.resume_all(where="held = 'paused'")).done == 8
        await env.settle()
        assert (await env.app.resume_all(where="true")).done == 0
        for run in runs:
            await run.signal(nod, 3)
            assert await env.result(run) == 3


async def test_terminate_all(env: Environment) -> None:
    async with env:
        parked = await some(env, 4)
        await env.pass_time(20)
        live = await some(env, 4)
        await env.settle()
        assert (await env.app.terminate_all(where="workflow = 'bulk_nods'", reason="over")).done == 8
        await env.settle()
        assert await statuses(parked + live) == ["TERMINATED"] * 8


async def test_retry_all_retries_each_once(env: Environment) -> None:
    async with env:
        runs = [await env.start(tries.options(id=f"t-{n}")) for n in range(7)]
        await env.pass_time(60)
        assert await statuses(runs) == ["FAILED"] * 7
        fails[0] = False
        assert await env.app.retry_all(where="status = 'failed'", dry_run=True) == Bulk(7, 0, 0, {})
        assert await env.app.retry_all(where="workflow = 'tries'", reason="mended") == Bulk(7, 7, 0, {})
        # Their retries are newer than all that was there; those that were retried are left alone.
        assert await env.app.retry_all(where="status = 'failed'") == Bulk(7, 0, 7, {})
        for number in range(7):
            assert await env.result(await env.app.get(f"t-{number}")) == "fine"


async def test_a_broadcast_comes_once_to_each_run_under_its_id(env: Environment) -> None:
    async with env:
        runs = await some(env, 7)
        await env.pass_time(20)
        assert (await env.app.pause_all(where="true")).done == 7
        assert await env.app.broadcast(nod, 5, where="tenant = 'acme'", id="b-1") == Bulk(7, 7, 0, {})
        assert await env.app.broadcast(nod, 5, where="tenant = 'acme'", id="b-1") == Bulk(7, 0, 7, {})
        assert (await env.app.broadcast("nod", 6, where="true")).done == 7
        assert [[message.payload for message in await run.unread()] for run in runs] == [[5, 6]] * 7
        assert (await env.app.resume_all(where="true")).done == 7
        for run in runs:
            assert await env.result(run) == 5


async def test_runs_that_are_started_meanwhile_are_left_alone(env: Environment) -> None:
    async with env:
        await some(env, 5)
        await env.pass_time(20)
        late: list[Any] = []

        def start(_: Bulk) -> None:
            late.append(env.app.start(bulk_nods.options(attributes={"tenant": "acme"})))

        found = await env.app.pause_all(where="true", progress=start)
        assert found == Bulk(5, 5, 0, {})
        more = [await each for each in late]
        await env.settle()
        assert "paused" not in await statuses(more)


async def test_a_run_that_does_not_match_any_more_when_its_bite_comes_is_left_alone(
    env: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was read with its page, and changed right before it was its turn."""
    async with env:
        runs = await some(env, 6)
        await env.pass_time(20)
        last = min(runs, key=lambda run: run.run_id)
        real = bulk_part.StoreBulk._ask

        async def ask(self: Any, row: Any, *rest: Any) -> Any:
            if row.run_id == last.run_id:
                await last.set_attributes(tenant="other")
            return await real(self, row, *rest)

        monkeypatch.setattr(bulk_part.StoreBulk, "_ask", ask)
        assert await env.app.pause_all(where="tenant = 'acme'") == Bulk(6, 5, 1, {})
        assert "paused" not in await statuses([last])


async def test_one_bad_run_never_stops_the_others() -> None:
    async with Environment(max_unread=2) as env:
        runs = await some(env, 7)
        await env.pass_time(20)
        await env.app.pause_all(where="true")
        for number in range(2):
            await runs[3].signal(nod, number)
        found = await env.app.broadcast(nod, 9, where="true")
        assert (found.matched, found.done, found.errors["InboxFull"].count) == (7, 6, 1)
        assert found.errors["InboxFull"].ids == (runs[3].id,)


async def test_a_run_whose_row_is_spoilt_between_two_looks_never_stops_the_others(
    quick_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has changed since it was read, so it is looked at once more, and cannot be compared with the filter then."""
    path = str(quick_path / "test.db")
    async with Environment(path) as env:
        runs = await some(env, 3)
        await env.pass_time(20)
        ask = bulk_part.StoreBulk._ask

        async def ask_late(self: Any, row: Any, *how: Any) -> Any:
            if row.workflow_id == runs[1].id:
                with closing(sqlite3.connect(path)) as db, db:
                    db.execute("update runs set attributes = '[1]', step = 'on' where workflow_id = ?", [runs[1].id])
            return await ask(self, row, *how)

        monkeypatch.setattr(bulk_part.StoreBulk, "_ask", ask_late)
        found = await env.app.pause_all(where="true")
        assert (found.done, found.errors["RunUnreadable"].ids) == (2, (runs[1].id,))


async def test_of_many_bad_runs_ten_are_named() -> None:
    async with Environment(max_unread=1) as env:
        runs = await some(env, 12)
        await env.pass_time(20)
        await env.app.pause_all(where="true")
        assert (await env.app.broadcast(nod, 1, where="true")).done == 12
        full = (await env.app.broadcast(nod, 2, where="true")).errors["InboxFull"]
        assert (full.count, len(full.ids)) == (12, 10)
        assert set(full.ids) < {run.id for run in runs}


async def test_what_happens_between_the_looks_is_heeded(env: Environment, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that is started after the newest was read is left alone; one that matches no more is counted as skipped."""
    async with env:
        runs = await some(env, 5)
        await env.pass_time(20)
        oldest, late = min(runs, key=lambda run: run.run_id), list[Run[Any]]()
        real_keys, real_among = finding.MatchingReads.keys, finding.MatchingReads.among

        async def keys(self: Any, wanted: Any) -> Any:
            late.append(await env.start(bulk_nods.options(attributes={"tenant": "acme"})))
            return await real_keys(self, wanted)

        async def among(self: Any, wanted: Any, found: Any) -> Any:
            await oldest.set_attributes(tenant="other")
            return await real_among(self, wanted, found)

        monkeypatch.setattr(finding.MatchingReads, "keys", keys)
        monkeypatch.setattr(finding.MatchingReads, "among", among)
        assert await env.app.pause_all(where="tenant = 'acme'") == Bulk(5, 4, 1, {})
        await env.settle()
        assert "paused" not in await statuses([oldest, *late])


async def test_activities_on_a_queue_are_left_out_unless_they_are_asked_for(env: Environment) -> None:
    async with env:
        run = await env.start(goes_far)
        await env.pass_time(20)
        assert (await env.app.pause_all(where="true")).done == 1
        await env.settle()
        (task,) = await run.children()
        assert task.held == "paused"
        assert await env.app.resume_all(where="held = 'paused'", dry_run=True) == Bulk(1, 0, 0, {})
        assert await env.app.cancel_all(where="workflow = 'task:bulk_far_away'", dry_run=True) == Bulk(1, 0, 0, {})


async def test_it_stays_in_its_namespace(env: Environment) -> None:
    async with env, Environment(env.path, clock=env.clock, namespace="blue") as blue:
        here, there = await some(env, 2), await some(blue, 2)
        await env.pass_time(20)
        assert (await env.app.pause_all(where="true")).done == 2
        assert await statuses(here) == ["paused"] * 2
        assert "paused" not in await statuses(there)


async def test_which_runs_has_to_be_said(env: Environment) -> None:
    async with env:
        await some(env, 1)
        with pytest.raises(TypeError):
            await env.app.cancel_all()  # type: ignore[call-arg]  # that is the mistake
        with pytest.raises(BadOption, match="where='true' means all"):
            await env.app.cancel_all(where=None)  # type: ignore[arg-type]  # as above
        for bad in ("", "status ="):
            with pytest.raises(BadFilter):
                await env.app.terminate_all(where=bad)
        with pytest.raises(BadOption, match="progress"):
            await env.app.pause_all(where="true", progress=7)  # type: ignore[arg-type]  # as above


async def test_a_caller_that_dies_half_way_leaves_the_rest_to_the_same_call(env: Environment) -> None:
    async with env:
        runs = await some(env, 12)
        await env.pass_time(20)
        async with Environment(env.path, clock=env.clock, worker=False) as client:

            def die(found: Bulk) -> None:
                if found.done == 6:
                    raise KeyboardInterrupt

            with pytest.raises(KeyboardInterrupt):
                await client.app.pause_all(where="status = 'suspended' and held is null", progress=die)
        assert sorted(await statuses(runs)).count("paused") == 6
        assert (await env.app.pause_all(where="status = 'suspended' and held is null")).done == 6
        assert await statuses(runs) == ["paused"] * 12


async def test_a_run_that_is_what_was_read_is_asked_at_the_first_try(
    env: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the action itself changes is no reason to read the run again."""
    async with env:
        await some(env, 6)
        await env.pass_time(20)
    asked: list[str] = []
    real = bulk_part.StoreBulk._answer

    async def answer(self: Any, row: Any, *rest: Any) -> Any:
        asked.append(row.run_id)
        return await real(self, row, *rest)

    monkeypatch.setattr(bulk_part.StoreBulk, "_answer", answer)
    async with Environment(env.path, clock=env.clock, worker=False) as client:
        for act in (client.app.pause_all, client.app.resume_all, client.app.cancel_all, client.app.terminate_all):
            asked.clear()
            assert (await act(where="true")).done == 6
            assert len(asked) == 6


def test_a_bulk_action_takes_small_bites_with_rests_while_others_write(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else every write of other runs would wait for one; a disk that stood still says nothing of others."""
    monkeypatch.setattr(pace, "SMALL", 2)
    walk = pace.Pace()
    assert (walk.size, walk.rest_after(0.01)) == (pace.LARGE, 0)
    walk.note(others_wrote=True)
    for _ in range(pace.BELIEVED):
        assert walk.size == pace.SMALL
        assert walk.rest_after(0.01) == pytest.approx(0.006)
        assert walk.rest_after(60.0) == pace.LONGEST_REST
        walk.note(others_wrote=False)
    assert (walk.size, walk.rest_after(0.01)) == (pace.LARGE, 0)
