"""Changed code: a history that does not fit is held, shown, and goes on when the old code is back."""

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from perdure import Signal, Status, Workflow, activity
from perdure.authoring.options import WorkflowOptions
from perdure.testing import Environment

go = Signal("go", int)


@activity
async def pack(what: str) -> str:
    return f"packed {what}"


@activity
async def ship(what: str) -> str:
    return f"shipped {what}"


async def original(what: str) -> str:
    packed = await pack(what)
    await go.receive()
    return await ship(packed)


async def swapped(what: str) -> str:
    shipped = await ship(what)
    await go.receive()
    return await pack(shipped)


async def shortened(what: str) -> str:
    return what


async def with_another_parameter(what: str, how: str) -> str:
    return what + how


def as_workflow(fn: Any) -> Workflow[..., Any]:
    """A version of the one workflow whose code changes."""
    return Workflow(fn, "changing", WorkflowOptions())


async def begun_with_the_original(path: Path) -> None:
    async with Environment(str(path), workflows=[as_workflow(original)]) as env:
        await env.start(as_workflow(original).options(id="run"), "book")
        await env.settle()


@pytest.mark.parametrize(
    ("changed", "history", "code_waits_at"),
    [
        (swapped, {"seq": 2, "kind": "ActivityCompleted", "place": "pack"}, ["ship"]),
        (shortened, {"seq": 2, "kind": "ActivityCompleted", "place": "pack"}, []),
        (with_another_parameter, None, []),
    ],
)
async def test_changed_code_is_held_with_both_sides_shown(
    tmp_path: Path, changed: Any, history: object, code_waits_at: list[str]
) -> None:
    path = tmp_path / "changing.db"
    await begun_with_the_original(path)
    async with Environment(str(path), workflows=[as_workflow(changed)]) as env:
        run = await env.app.get("run")
        await run.signal(go, 1)
        await env.settle()
        info = await run.describe()
        assert (info.status, info.held) == (Status.SUSPENDED, "mismatch")
        report = msgspec.json.decode(info.held_report or "")
        assert (report["history"], report["code_waits_at"]) == (history, code_waits_at)
        before = await env.events("run")
        await env.pass_time(3600)
        assert await env.events("run") == before

    async with Environment(str(path), workflows=[as_workflow(original)]) as env:
        run = await env.app.get("run")
        assert await env.result(run) == "shipped packed book"
        assert (await run.describe()).held is None


async def test_a_step_added_beside_others_is_no_mismatch(tmp_path: Path) -> None:
    """Only what finds nobody waiting is; a further call is simply made."""

    async def wider(what: str) -> str:
        extra = asyncio.create_task(pack("paper"))
        result = await original(what)
        return f"{result}, {await extra}"

    path = tmp_path / "wider.db"
    await begun_with_the_original(path)
    async with Environment(str(path), workflows=[as_workflow(wider)]) as env:
        run = await env.app.get("run")
        await run.signal(go, 1)
        assert await env.result(run) == "shipped packed book, packed paper"


async def test_a_timed_out_call_followed_by_more_steps_replays_clean(tmp_path: Path) -> None:
    """A call given up by a timeout has no event; that alone is no mismatch."""

    async def impatient(what: str) -> str:
        try:
            async with asyncio.timeout(5):
                await go.receive()
        except TimeoutError:
            what = await pack(what)
        await go.receive()
        return await ship(what)

    path = tmp_path / "impatient.db"
    async with Environment(str(path), workflows=[as_workflow(impatient)], replay_always=True) as env:
        run = await env.start(as_workflow(impatient).options(id="run"), "book")
        await env.pass_time(5)
        await env.crash()
        run = await env.app.get("run")
        await run.signal(go, 1)
        assert await env.result(run) == "shipped packed book"
