"""A worker over a server: few requests, lost answers, a server that is away, and what such a worker does not do."""

import asyncio
from collections import Counter
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import cast

import msgspec
import pytest

from perdure import BadOption, Every, Perdure, Run, RunFailed, Stream, Workflow, activity, sleep, workflow
from perdure.app.internals import connect_by, engine_of, furnish
from perdure.authoring.options import DEFAULTS
from perdure.engine.ports import Engine, Registration, RemoteWorker
from perdure.errors import LeaseLost, NotAuthenticated, NotOpen, PerdureError, RunNotOwned, StoreUnavailable
from perdure.http.problems import problem_of
from perdure.http.remote.engine import RemoteEngine
from perdure.http.remote.transport import HttpAnswer
from perdure.http.remote.worker.claims import ClaimerOverHttp
from perdure.http.remote.worker.handed import WireRun
from perdure.ids import RandomIds
from tests.server.http_environment import HttpEnvironment

calls: Counter[str] = Counter()
remote_lines = Stream("remote_lines", int)


@activity
async def remote_counted(name: str) -> str:
    calls[name] += 1
    return name


@activity(queue="remote parcels")
async def remote_parcel(name: str) -> str:
    calls[name] += 1
    remote_lines.publish(1)
    return name


@activity
async def remote_publishes(name: str) -> str:
    calls[name] += 1
    remote_lines.publish(calls[name])
    return name


@activity(transaction=True)
def remote_transaction() -> None:
    """Never called."""


@workflow
async def remote_five_steps(name: str) -> str:
    for step in range(5):
        await remote_counted(f"{name}.{step}")
    return name


@workflow
async def remote_publishing(name: str) -> str:
    remote_lines.publish(0)
    await remote_publishes(name)
    remote_lines.publish(100)
    return name


@workflow
async def remote_naps(name: str) -> str:
    await remote_counted(name)
    await sleep(timedelta(seconds=30))
    await remote_counted(f"{name} again")
    return name


@workflow
async def remote_sends_parcel(name: str) -> str:
    return await remote_parcel(name)


@workflow
async def remote_transacts() -> None:
    await remote_transaction()


def scheduled() -> Workflow[[], None]:
    """Code with a schedule; not registered, or every worker of other tests would have it."""

    async def remote_scheduled() -> None: ...

    code = Workflow(remote_scheduled, "remote_scheduled", DEFAULTS)
    code.schedule = Every(timedelta(hours=6))
    return code


@pytest.fixture(autouse=True)
def _nothing_called() -> None:
    calls.clear()


@pytest.fixture
def env(quick_path: Path) -> HttpEnvironment:
    """A closed environment over a server."""
    return HttpEnvironment(str(quick_path / "test.db"), queues=("default", "remote parcels"))


def requests_of(env: HttpEnvironment) -> int:
    engine = cast("object", engine_of(env.app))
    assert isinstance(engine, RemoteEngine)
    return engine.requests


async def test_many_runs_are_told_in_few_requests(env: HttpEnvironment) -> None:
    async with env:
        runs = await env.app.start_many(*(remote_five_steps.call(str(number)) for number in range(500)))
        before = requests_of(env)
        for run in runs:
            assert isinstance(run, Run)
            await env.result(run)

        steps = 500 * 5
        assert sum(calls.values()) == steps
        assert requests_of(env) - before <= steps / 20


@pytest.mark.parametrize("lost", range(1, 4))
async def test_what_is_written_and_not_answered_is_not_done_twice(env: HttpEnvironment, lost: int) -> None:
    """The number of the last event tells what was written, whichever answer is lost, one or several in a row."""
    async with env:
        for number in range(6):
            run = await env.start(remote_five_steps.options(id=f"run {number}"), f"run {number}")
            for _ in range(number):
                await asyncio.sleep(0)
            env.transport.lose(lost, "advance")
            assert await env.result(run) == f"run {number}"
            assert env.transport.lost == 0
            events = [event.kind for event in await env.events(run.id)]
            assert events == ["RunStarted", *["ActivityCompleted"] * 5, "RunCompleted"]
        assert {*calls.values()} == {1}


async def test_a_lost_answer_publishes_nothing_twice(env: HttpEnvironment) -> None:
    """What its code has published is counted; an activity that is lost with its values runs again, as in a crash."""
    async with env:
        for number in range(6):
            run = await env.start(remote_publishing, f"line {number}")
            for _ in range(3 * number):
                await asyncio.sleep(0)
            env.transport.lose(1, "advance")
            assert await env.result(run) == f"line {number}"
            env.transport.lose(0)
            found = [item.value async for item in run.stream(remote_lines)]
            tries = calls[f"line {number}"]
            assert found == [0, *range(1, tries + 1), 100]


async def test_a_lost_claim_is_asked_for_again(env: HttpEnvironment) -> None:
    async with env:
        env.transport.lose(1, "claim-runs")
        run = await env.start(remote_five_steps, "claimed")
        assert await env.result(run) == "claimed"


async def test_two_workers_share_a_queue_and_one_goes_on_for_both(env: HttpEnvironment) -> None:
    async with env:
        other = Perdure("http://server:7373", queues=("default", "remote parcels"), grace=0)
        furnish(other, env.store, env.clock, RandomIds(7), replay_always=False)
        transport, clock = env.transport, env.clock
        connect_by(other, lambda url, key: cast("Engine", RemoteEngine(url, transport, clock, key)))
        async with other:
            runs = [await env.start(remote_sends_parcel, f"parcel {number}") for number in range(20)]
            napping = [await env.start(remote_naps, f"nap {number}") for number in range(20)]
            for run in runs:
                await env.result(run)
            await env.settle()
        for run in napping:
            await env.result(run)
        assert {*calls.values()} == {1}


async def test_results_are_kept_while_the_server_is_away(env: HttpEnvironment) -> None:
    async with env:
        run = await env.start(remote_five_steps, "away")
        env.transport.is_down = True
        await env.pass_time(5)
        env.transport.is_down = False

        assert await env.result(run) == "away"
        assert {*calls.values()} == {1}


def told(error: PerdureError) -> HttpAnswer:
    status, problem = problem_of(error, "request")
    return HttpAnswer(status, {}, msgspec.json.encode(problem))


async def test_a_server_that_ends_and_a_proxy_that_answers_for_it_are_no_fault_of_any_run(env: HttpEnvironment) -> None:
    """What is not told now is told later; a run that is held for it would have to be seen to by hand."""
    async with env:
        for number, verb in enumerate(("advance", "claim-runs", "listen")):
            env.transport.instead_at = verb
            by_itself = [(502, b"<html>Bad Gateway</html>"), (429, b'{"error": "Too Many Requests"}')]
            answers = [HttpAnswer(status, {}, body) for status, body in by_itself]
            env.transport.instead = [*answers, told(NotOpen()), told(NotOpen())]
            run = await env.start(remote_five_steps, f"proxy {number}")
            assert await env.result(run) == f"proxy {number}"
            env.transport.instead = []
        assert {*calls.values()} == {1}


@pytest.mark.parametrize("times", [1, 2, 3])
async def test_a_process_that_is_stopped_for_longer_than_a_lease_while_it_opens_opens_all_the_same(
    env: HttpEnvironment, times: int
) -> None:
    """It says what it has code for in several calls, and its worker may be taken over before any of them."""
    async with env:
        other = Perdure("http://server:7373", grace=0)
        furnish(other, env.store, env.clock, RandomIds(7), replay_always=False)
        transport, clock = env.transport, env.clock
        connect_by(other, lambda url, key: cast("Engine", RemoteEngine(url, transport, clock, key)))
        transport.instead_at, transport.instead = "announce", [told(LeaseLost("worker", 1))] * times
        async with other:
            assert transport.instead == []


async def test_who_listens_now_here_and_now_there_is_not_told_of_work_at_every_call(env: HttpEnvironment) -> None:
    """Two servers have counted different work; a worker between them would ask both without end."""
    async with env:
        engine = env.engine
        lease = await engine.remote.register("main", Registration("node", ("elsewhere",), (), ()))
        worker = RemoteWorker("main", lease.worker_id, lease.epoch)
        here = await engine.remote.listening.hear(worker, 0, 0, waits=False)
        elsewhere = here.work ^ (1 << 40)

        heard = asyncio.ensure_future(engine.remote.listening.hear(worker, here.after, elsewhere, waits=True))
        await env.settle()
        assert not heard.done()
        await env.pass_time(2)

        assert (await heard).work >> 32 == here.work >> 32


async def test_a_worker_that_is_away_for_longer_than_its_lease_begins_anew(env: HttpEnvironment) -> None:
    async with env:
        env.engine.remote.lease_ms = 10_000
        run = await env.start(remote_naps, "anew")
        await env.settle()
        engine = cast("RemoteEngine", engine_of(env.app))
        (before,) = await env.store.reads.workers()
        env.transport.is_down = True
        await env.pass_time(5)
        # As after its lease.
        await env.engine.takeover.take_over(before)
        env.transport.is_down = False

        assert await env.result(run) == "anew"
        assert engine.worker_id != before.worker_id
        assert calls["anew again"] == 1


async def test_a_worker_that_registers_anew_takes_nothing_meanwhile(
    env: HttpEnvironment, caplog: pytest.LogCaptureFixture
) -> None:
    """Its lease is over and it cannot register yet: there is nothing that it could have, and it is lost only once."""
    async with env:
        run = await env.start(remote_naps, "over")
        await env.settle()
        engine = cast("RemoteEngine", engine_of(env.app))
        (before,) = await env.store.reads.workers()
        names = tuple(msgspec.json.decode(before.workflows or "[]", type=list[str]))
        look = partial(engine.claimer.claim, "main", ("default",), names, 10, 1)
        env.transport.is_down = True
        with pytest.raises(StoreUnavailable):
            await look()
        # As after its lease; it is in doubt what the claim was given.
        await env.engine.takeover.take_over(before)
        env.transport.is_down = False
        assert [await look(), await look()] == [[], []]

        assert await env.result(run) == "over"
        assert engine.worker_id != before.worker_id
        assert sum(record.getMessage() == "lease lost" for record in caplog.records) == 1


async def test_what_needs_the_database_is_refused(env: HttpEnvironment) -> None:
    async with env:
        with pytest.raises(RunFailed, match="a server lends no connection"):
            await env.run(remote_transacts)
        with pytest.raises(BadOption, match="inside a transaction"):
            await env.app.start_within(object(), remote_five_steps, "x")


async def test_schedules_of_the_code_are_made_by_the_server(quick_path: Path) -> None:
    """And are removed when the code does not declare them any more."""
    env = HttpEnvironment(str(quick_path / "test.db"), workflows=[scheduled(), remote_naps])
    async with env:
        (made,) = await env.app.schedules.list()
        assert (made.name, made.source) == ("remote_scheduled", "code")
        await cast("Engine", engine_of(env.app)).schedules.reconcile("main", {}, ())
        assert await env.app.schedules.list() == []


async def test_runs_that_came_with_one_that_is_lost_at_once_are_not_lost_with_it(
    env: HttpEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A long history comes in pages, and somebody may have ended its run before the last one."""
    bring_to_life, met = ClaimerOverHttp._bring_to_life, []

    async def lose_the_first(self: ClaimerOverHttp, run: WireRun, tenure: object) -> None:
        met.append(run.run_id)
        if len(met) == 1:
            raise RunNotOwned(run.run_id, "worker")
        await bring_to_life(self, run, tenure)

    monkeypatch.setattr(ClaimerOverHttp, "_bring_to_life", lose_the_first)
    async with env:
        runs = await env.app.start_many(*(remote_five_steps.call(str(number)) for number in range(5)))
        for run in runs:
            assert isinstance(run, Run)
            await env.result(run)
        assert {*calls.values()} == {1}


async def test_a_worker_that_cannot_register_anew_just_now_goes_on_trying(env: HttpEnvironment) -> None:
    """Whatever the server says: a worker that gave up would be there, and do nothing for ever."""
    async with env:
        (before,) = await env.store.reads.workers()
        env.transport.instead_at, env.transport.instead = "/v1/workers", [told(NotAuthenticated())] * 3
        await env.engine.takeover.take_over(before)
        run = await env.start(remote_five_steps, "at last")
        assert await env.result(run) == "at last"
        assert env.transport.instead == []


async def test_a_run_that_the_server_could_not_write_just_now_is_not_broken(env: HttpEnvironment) -> None:
    """It says so of one run among others, while it ends or its database is away."""
    async with env:
        for number, error in enumerate((NotOpen(), StoreUnavailable("sqlite:///x", "busy"))):
            _, problem = problem_of(error, "request")
            said = {"answers": [{"problem": problem}], "news": {"after": 0, "messages": []}}
            env.transport.instead_at = "advance"
            env.transport.instead = [HttpAnswer(200, {}, msgspec.json.encode(said))]
            run = await env.start(remote_five_steps, f"busy {number}")
            assert await env.result(run) == f"busy {number}"
            assert env.transport.instead == []
        assert {*calls.values()} == {1}
