"""A server without code knows the workflows that workers have announced, and checks arguments as far as that goes."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from perdure import Deferred, Perdure, Signal, sleep, workflow
from perdure.app.announcing import announce, announced
from perdure.app.internals import engine_of
from perdure.app.network.serving import application
from perdure.engine.ports import Engine
from perdure.http.access import anybody
from perdure.http.catalog import Catalog
from perdure.testing import Environment
from tests.server.in_process import Caller

go = Signal("announced-go", int)
decision = Deferred("announced-decision", bool)


@workflow
async def announced_order(order: str, cents: int = 100, note: str | None = None) -> list[object]:
    """Sells something."""
    return [order, cents, note]


def without_code(engine: Engine) -> Caller:
    catalog = Catalog(lambda _: None, lambda: (), engine.announcements, engine.clock)
    return Caller(application(engine, catalog, anybody), host="localhost")


async def test_a_workflow_is_started_by_a_server_that_has_no_code(env: Environment) -> None:
    """Its bytes go to disk as they came, and defaults are those of the code."""
    async with env:
        engine = engine_of(env.app)
        assert engine is not None
        call = without_code(engine)
        unknown = await call.post("/v1/runs", {"workflow": "announced_order", "input": ["o-1"]})
        await announce(engine, "main", [announced_order])
        start = {"workflow": "announced_order", "id": "a"}
        named = await call.post("/v1/runs?wait=20", start | {"input": {"order": "o-1"}})
        listed = await call.post("/v1/runs?wait=20", {"workflow": "announced_order", "input": ["o-2", 5], "id": "b"})
        again = await call.post("/v1/runs", start | {"input": ["o-1", 100, None]})

        assert (unknown.status, unknown.json["error"]) == (422, "UnknownWorkflow")
        assert (named.status, named.json["result"]) == (201, ["o-1", 100, None])
        assert listed.json["result"] == ["o-2", 5, None]
        assert (again.status, again.json["run_id"]) == (200, named.json["run_id"])
        other = (await call.post("/v1/runs", {"workflow": "announced_ordr"})).json
        assert "did you mean announced_order? known: " in other["detail"]
        assert "no module of this server has it, and no worker has announced it" in other["detail"]


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({}, "'order' is missing"),
        ({"order": 1}, "expected string, got integer"),
        ({"order": "o", "cent": 1}, "no parameter 'cent'"),
        (["o", "x"], "expected integer, got string"),
        (["o", 1, None, 2], "4 given"),
        ("o", "by name or an array"),
    ],
)
async def test_arguments_are_checked_as_far_as_they_were_announced(quick_path: Path, given: Any, told: str) -> None:
    async with Environment(str(quick_path / "test.db")) as env:
        engine = engine_of(env.app)
        assert engine is not None
        await announce(engine, "main", [announced_order])
        call = without_code(engine)
        refused = await call.post("/v1/runs", {"workflow": "announced_order", "input": given})

        assert (refused.status, refused.json["error"]) == (422, "BadArguments")
        assert told in refused.json["detail"]
        assert (await call.get("/v1/runs")).json["items"] == []


def test_what_is_announced_is_what_forms_are_made_of() -> None:
    found = announced(announced_order)

    assert found.about == "Sells something."
    assert [(each.name, each.default) for each in found.parameters] == [
        ("order", None),
        ("cents", "100"),
        ("note", "null"),
    ]
    assert found.parameters[0].schema == {"type": "string"}
    assert [(each.kind, each.name) for each in found.channels] == [
        ("deferred", "announced-decision"),
        ("signal", "announced-go"),
    ]


async def test_a_worker_announces_what_it_has_and_writes_nothing_when_that_is_known(tmp_path: Path) -> None:
    """Thousands of workers begin with the same code."""
    url = f"sqlite:///{tmp_path / 'shop.db'}"

    async def times() -> list[tuple[str, int]]:
        async with Perdure(url, workflows=[announced_order]):
            pass
        with closing(sqlite3.connect(tmp_path / "shop.db")) as db:
            return db.execute("select name, announced_at from announced_workflows").fetchall()

    first = await times()

    assert [name for name, _ in first] == ["announced_order"]
    assert await times() == first


@workflow
async def announced_waiting() -> int:
    await sleep(60)
    return await go.receive()


async def test_a_signal_is_compared_with_what_was_announced_before_anybody_waits_for_it(env: Environment) -> None:
    """The run sleeps: what it would set aside later is refused now, unless it is sent by force."""
    async with env:
        engine = engine_of(env.app)
        assert engine is not None
        await announce(engine, "main", [announced_waiting])
        call = without_code(engine)
        await env.app.start(announced_waiting.options(id="w"))
        signal = {"name": "announced-go", "payload": "many"}
        refused = await call.post("/v1/runs/w/signals", signal)
        assert (refused.status, refused.json["error"]) == (422, "BadValue")
        assert "takes another payload" in refused.json["detail"]
        sent = [
            await call.post("/v1/runs/w/signals", each) for each in (signal | {"force": True}, signal | {"payload": 4})
        ]
        unknown = await call.post("/v1/runs/w/signals", {"name": "announced-other", "payload": "any"})
        assert [each.status for each in (*sent, unknown)] == [200, 200, 200]
