"""A Perdure over a server: the same methods, the same answers, the same errors."""

import asyncio
from pathlib import Path
from typing import Any, cast

import pytest

import perdure
from perdure import (
    AlreadyResolved,
    BadArguments,
    BadOption,
    Deferred,
    Perdure,
    Request,
    RunClosed,
    RunFailed,
    RunNotFound,
    RunTerminated,
    Signal,
    Stream,
    UnknownWorkflow,
    activity,
    expose,
    workflow,
)
from perdure.app.internals import connect_by
from perdure.app.run import detail_of
from perdure.engine.ports import Engine
from perdure.http.remote.engine import RemoteEngine
from perdure.testing import Environment
from tests.server.asgi_transport import over_http

go = Signal("remote-go", int)
decision = Deferred("remote-decision", bool)
total = Request("remote-total", int, int)
parts = Stream("remote-parts", str)


class OutOfStock(Exception):  # noqa: N818 - as a user would name it
    pass


@activity
async def remote_double(n: int) -> int:
    return n * 2


@workflow
async def remote_adding(n: int) -> int:
    expose("n", lambda: n)
    parts.publish("a")
    parts.publish("b")
    return await remote_double(n) + await go.receive()


@workflow
async def remote_deciding() -> tuple[bool, str]:
    return await decision.wait(), decision.token()


@workflow
async def remote_answering() -> None:
    async for asked in total:
        if asked.value < 0:
            asked.refuse("too low")
        else:
            asked.answer(asked.value + 1)


@workflow
async def remote_failing(order: str) -> None:
    raise OutOfStock(order)


async def test_a_run_is_started_signalled_and_awaited(env: Environment) -> None:
    async with over_http(env) as (app, _):
        run = await app.start(remote_adding.options(id="o/17", attributes={"tier": 2}), 3)
        await run.signal(go, 4, id="once")
        await run.signal(go, 4, id="once")
        assert await run.result() == 10

        again = await app.get("o/17", workflow=remote_adding)
        assert (again.run_id, await again) == (run.run_id, 10)
        info = await run.describe()
        assert (info.id, info.status, info.attributes) == ("o/17", "COMPLETED", {"tier": 2})
        assert [event.kind async for event in run.events()] == [
            "RunStarted",
            "ActivityCompleted",
            "SignalReceived",
            "RunCompleted",
        ]
        assert await run.query("n") == 3
        assert [(item.n, item.value) async for item in run.stream(parts)] == [(1, "a"), (2, "b")]


async def test_a_signal_with_a_delay_is_received_later(env: Environment) -> None:
    async with over_http(env) as (app, _):
        run = await app.start(remote_adding.options(id="later"), 3)
        sent_at = env.clock.now()
        await run.signal(go, 4, delay=60)
        (unread,) = await run.unread()
        assert unread.due_at is not None
        assert unread.due_at.timestamp() * 1000 == sent_at + 60_000
        with pytest.raises(BadOption, match="delay"):
            await run.signal(go, 4, delay=-1)
        assert await env.alive(run.result()) == 10
        assert env.clock.now() >= sent_at + 60_000


async def test_errors_are_those_of_the_engine(env: Environment) -> None:
    async with over_http(env) as (app, _):
        failed = await app.start(remote_failing.options(id="f"), "o-1")
        with pytest.raises(RunFailed) as raised:
            await failed.result()
        assert isinstance(raised.value.__cause__, OutOfStock)
        with pytest.raises(RunClosed, match=r"has ended \(FAILED\)"):
            await failed.signal(go, 1)
        with pytest.raises(RunNotFound) as missing:
            await app.get("nobody")
        assert missing.value.id == "nobody"


async def test_a_workflow_without_code_here_is_started_by_its_name(env: Environment) -> None:
    """The server knows it; what is no JSON never gets there."""
    async with over_http(env) as (app, transport):
        furnished = Perdure("http://server:7373", worker=False, workflows=[remote_failing])
        connect_by(furnished, lambda url, key: cast("Engine", RemoteEngine(url, transport, env.clock, key)))
        async with furnished as elsewhere:
            run = await elsewhere.start_json("remote_adding", b"[3]", id="by-name", attributes={"tier": 2})
            assert (await app.get("by-name")).run_id == run.run_id
            assert (await run.describe()).attributes == {"tier": 2}
            with pytest.raises(BadArguments, match="not JSON"):
                await elsewhere.start_json("remote_adding", b'[3], "id": "other"')
            with pytest.raises(UnknownWorkflow, match="remote_adding"):
                await elsewhere.start_json("remote_addin", b"[3]")


async def test_runs_are_listed_counted_and_stopped(env: Environment) -> None:
    async with over_http(env) as (app, _):
        for n in range(3):
            await app.start(remote_adding.options(id=f"l-{n}", attributes={"tier": n}), n)
        page = await app.list(where="tier >= :least", params={"least": 1}, workflow="remote_adding")
        assert sorted(run.id for run in page) == ["l-1", "l-2"]
        assert await app.count(where="tier >= 1") == 2
        assert await app.count(where="tier >= 1", by="workflow") == {"remote_adding": 2}

        run = await app.get("l-0")
        await run.terminate("enough")
        with pytest.raises(RunTerminated):
            await run.result()


async def test_deferreds_and_requests_reach_the_run(env: Environment) -> None:
    async with over_http(env) as (app, _):
        deciding = await app.start(remote_deciding.options(id="d"))
        await deciding.resolve(decision, True)
        with pytest.raises(AlreadyResolved):
            await deciding.resolve(decision, False)
        is_decided, token = await deciding.result()
        assert is_decided
        with pytest.raises(AlreadyResolved):
            await app.resolve(token, False)

        answering = await app.start(remote_answering.options(id="a"))
        assert await answering.ask(total, 4, id="web-1") == 5
        with pytest.raises(perdure.RequestRefused, match="too low"):
            await answering.ask(total, -1)


async def test_a_lost_answer_is_asked_for_again(env: Environment) -> None:
    """A start with an id is found again; nothing is done twice."""
    async with over_http(env) as (app, transport):
        transport.lose(1)
        run = await env.alive(app.start(remote_adding.options(id="lost"), 1))

        assert (await run.describe()).id == "lost"
        assert len(await app.list()) == 1


async def test_what_needs_the_database_says_so(env: Environment, tmp_path: Path) -> None:
    with pytest.raises(BadOption, match="leave it away"):
        Perdure("sqlite://", key="pdk_x")
    async with over_http(env) as (app, _):
        with pytest.raises(BadOption, match="inside a transaction"):
            await app.start_within(object(), remote_adding, 1)
        with pytest.raises(BadOption, match="on the URL of the database itself"):
            await app.check()


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o620])
def test_a_file_with_a_key_that_others_may_read_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: int
) -> None:
    path = tmp_path / "key"
    path.write_text("pdk_x\n")
    path.chmod(mode)
    monkeypatch.setenv("PERDURE_KEY_FILE", str(path))

    async def opened() -> Any:
        async with Perdure("http://127.0.0.1:9", worker=False):
            pass

    with pytest.raises(BadOption, match="chmod 600"):
        asyncio.run(opened())


@workflow
async def shown_child(n: int) -> int:
    return n + 1


@workflow
async def shown_parent() -> int:
    return await shown_child(3)


async def test_all_of_a_run_is_shown_over_a_server(env: Environment) -> None:
    """What `perdure show` tells of a run, of its parent and of its children."""
    async with over_http(env) as (app, _):
        run = await app.start(shown_parent.options(id="shown"))
        assert await env.result(run) == 4
        detail = await detail_of(run)
        children = [child.workflow for child in detail.children]
        assert (detail.info.id, detail.result, detail.events, children) == ("shown", 4, 3, ["shown_child"])
        child = await detail_of(await app.get(detail.children[0].id))
        assert (child.parent, child.input, child.unread_count) == ("shown", {"n": 3}, 0)
