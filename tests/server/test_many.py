"""What is asked of many runs, and seen of them: bulk, changes, schedules; a key of an entity reaches its own alone."""

import asyncio
from typing import Any
from urllib.parse import quote

import pytest

from perdure import CursorExpired, Signal, sleep, workflow
from perdure.engine.subscriptions.cursors import Cursor
from perdure.kernel.position import Position
from perdure.testing import Environment
from tests.server.in_process import Caller
from tests.server.keyed import caller_with, key_for

go = Signal("many-go", int)
OLD = str(Cursor(Position(0), 0))
NIGHTLY = {"type": "cron", "expression": "0 3 * * *", "zone": "Europe/Berlin"}


@workflow
async def many_sleeping(n: int = 0) -> None:
    await sleep(3600)


@workflow
async def many_noting(note: str | None = "x") -> None:
    await sleep(3600)


@workflow
async def many_waiting() -> int:
    return await go.receive()


async def two_entities(env: Environment) -> tuple[Caller, Caller]:
    """A caller who may do everything, and one of an entity; two runs of another, one of its own."""
    admin = caller_with(env, await key_for(env))
    npc = caller_with(env, await key_for(env, role="operator", entity_id="npc-42"))
    for number in range(2):
        await admin.post("/v1/runs", {"workflow": "many_waiting", "id": f"other-{number}", "entity_id": "npc-1"})
    await npc.post("/v1/runs", {"workflow": "many_waiting", "id": "own"})
    return admin, npc


async def test_many_runs_are_steered_in_one_request(env: Environment) -> None:
    async with env:
        admin, _ = await two_entities(env)
        where = {"where": "entity_id = :who", "params": {"who": "npc-1"}}
        counted = (await admin.post("/v1/bulk/terminate", where | {"dry_run": True})).json
        sent = (await admin.post("/v1/bulk/signal", where | {"name": "many-go", "payload": 3, "id": "x"})).json
        ended = (await admin.get("/v1/runs/other-0/result?wait=20")).json
        done = (await admin.post("/v1/bulk/cancel", {"where": "true", "reason": "night"})).json
        refused = await admin.post("/v1/bulk/cancel", {"where": "entity_id ="})

        assert (counted["matched"], counted["done"]) == (2, 0)
        assert (sent["matched"], sent["done"]) == (2, 2)
        assert ended == {"status": "COMPLETED", "result": 3}
        assert (done["matched"], done["done"]) == (1, 1)
        assert (refused.status, refused.json["error"]) == (422, "BadFilter")


@pytest.mark.parametrize("where", ["true", "entity_id = 'npc-1'", "entity_id = 'npc-1' or true"])
async def test_a_key_of_an_entity_steers_its_own_runs_alone(quick_path: Any, where: str) -> None:
    """Whatever the filter says."""
    async with Environment(str(quick_path / "test.db")) as env:
        admin, npc = await two_entities(env)
        signal = {"where": where, "name": "many-go", "payload": 1}
        matched = [
            (await npc.post(f"/v1/bulk/{verb}", body)).json["matched"]
            for verb, body in (
                ("pause", {"where": where}),
                ("resume", {"where": where}),
                ("signal", signal),
                ("terminate", {"where": where}),
                ("retry", {"where": where}),
            )
        ]
        assert set(matched) <= {0, 1}
        assert [(await admin.get(f"/v1/runs/other-{number}")).json["closed_at"] for number in range(2)] == [None, None]


async def test_changes_come_as_frames_and_are_resumed(env: Environment) -> None:
    """Also where the filter let nothing through: the sign of life says where to go on."""
    async with env:
        admin, npc = await two_entities(env)
        await env.settle()
        frames: list[dict[str, Any]] = []
        async for frame in admin.frames("/v1/subscribe?where=workflow%20%3D%20'many_waiting'"):
            frames.append(frame)
            if len(frames) == 3:
                break
        assert sorted(frame["data"]["run"]["workflow_id"] for frame in frames) == ["other-0", "other-1", "own"]
        reading = asyncio.ensure_future(_ending(admin, last_event_id=frames[-1]["id"]))
        await env.settle()
        await npc.post("/v1/runs/own/terminate", {"reason": "enough"})
        change = await env.alive(reading)

        assert (change["event"], change["data"]["run"]["status"]) == ("change", "TERMINATED")
        assert change["id"] == change["data"]["cursor"]


async def _ending(call: Caller, **headers: str) -> dict[str, Any]:
    """The change that a run has ended; what was seen before may come once more."""
    async for frame in call.frames("/v1/subscribe", **headers):
        if frame["data"]["run"]["closed_at"] is not None:
            return frame
    raise AssertionError("the stream ended")


async def test_a_key_of_an_entity_follows_its_own_runs_alone(env: Environment) -> None:
    async with env:
        admin, npc = await two_entities(env)
        await env.settle()
        seen: list[str] = []

        async def follow() -> None:
            async for frame in npc.frames("/v1/subscribe"):
                run = frame["data"]["run"]
                seen.append(run["workflow_id"])

        following = asyncio.ensure_future(follow())
        await env.settle()
        for id in ("other-0", "own"):
            await admin.post(f"/v1/runs/{id}/terminate", {})
        await env.pass_time(1)
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)

        assert set(seen) == {"own"}


async def test_a_cursor_that_is_too_old_is_refused_before_the_stream(env: Environment) -> None:
    async with env:
        admin, _ = await two_entities(env)
        with pytest.raises(CursorExpired):
            await _ending(admin, last_event_id=OLD)
        plain = await admin.get(f"/v1/subscribe?after={quote(OLD)}", accept="text/event-stream")
        foreign = await admin.get("/v1/subscribe?after=nonsense", accept="text/event-stream")

        assert (plain.status, plain.json["error"]) == (410, "CursorExpired")
        assert (foreign.status, foreign.json["error"]) == (422, "BadOption")
        assert (await admin.get("/v1/subscribe")).json["error"] == "BadOption"


async def test_schedules_of_another_entity_are_not_there(env: Environment) -> None:
    """Not shown, not changed, not overwritten; what one of an entity makes starts runs of that entity."""
    async with env:
        admin, npc = await two_entities(env)
        call = {"workflow": "many_sleeping", "input": [1]}
        theirs = {"name": "theirs", "call": call | {"entity_id": "npc-1"}, "when": NIGHTLY}
        made = await admin.post("/v1/schedules", theirs)
        own = await npc.post("/v1/schedules", {"name": "own", "call": call, "when": NIGHTLY})

        assert (made.status, own.status) == (201, 201)
        assert [each["name"] for each in (await npc.get("/v1/schedules")).json["items"]] == ["own"]
        for method, path, body in (
            ("GET", "", None),
            ("PATCH", "", {"when": {"zone": "UTC"}}),
            ("POST", "/pause", {}),
            ("POST", "/resume", {}),
            ("POST", "/trigger", {}),
            ("POST", "/backfill", {"start": "2020-01-01T00:00:00Z", "end": "2020-01-02T00:00:00Z"}),
        ):
            refused = await npc(method, f"/v1/schedules/theirs{path}", body)
            assert (refused.status, refused.json["error"]) == (404, "ScheduleNotFound"), path
        put = await npc("PUT", "/v1/schedules/theirs", {"call": call, "when": NIGHTLY})
        assert (put.status, put.json["error"]) == (409, "ScheduleExists")
        assert (await npc("DELETE", "/v1/schedules/theirs")).json == {"deleted": False}
        assert (await npc.post("/v1/schedules/own/trigger")).json["entity_id"] == "npc-42"
        assert (await admin.get("/v1/schedules/theirs")).json["arguments"] == {"n": 1}


@pytest.mark.parametrize(
    ("body", "error"),
    [
        ({"call": {"workflow": "nobody"}}, "UnknownWorkflow"),
        ({"call": {"workflow": "many_sleeping", "input": [1, 2]}}, "BadArguments"),
        ({"when": {"type": "cron", "expression": "every night"}}, "BadSchedule"),
        ({"when": {"type": "sometimes"}}, "BadField"),
        ({"when": {"type": "every", "interval": 0}}, "BadSchedule"),
    ],
)
async def test_schedules_that_make_no_sense_are_refused(quick_path: Any, body: dict[str, Any], error: str) -> None:
    async with Environment(str(quick_path / "test.db")) as env:
        admin = caller_with(env, await key_for(env))
        whole = {"name": "s", "call": {"workflow": "many_sleeping"}, "when": NIGHTLY}
        refused = await admin.post("/v1/schedules", whole | body)

        assert (refused.status, refused.json["error"]) == (422, error)
        assert (await admin.get("/v1/schedules")).json["items"] == []


async def test_a_fork_under_the_id_of_a_run_of_another_tells_nothing_of_it(env: Environment) -> None:
    async with env:
        admin, npc = await two_entities(env)
        other = (await admin.get("/v1/runs/other-0")).json["run_id"]
        refused = await npc.post("/v1/runs/own/fork", {"at": 1, "id": "other-0"})
        made = await npc.post("/v1/runs/own/fork", {"at": 1, "id": "mine"})
        await admin.post("/v1/runs", {"workflow": "many_noting", "id": "noting"})
        noted = await admin.post("/v1/runs/noting/fork", {"at": 1, "id": "noted", "input": {"note": None}})

        assert (refused.status, refused.json["error"]) == (409, "IdConflict")
        assert other not in str(refused.json)
        assert (made.status, made.json["entity_id"]) == (201, "npc-42")
        assert (noted.status, noted.json["id"]) == (201, "noted")


async def test_queues_and_workers_are_counted(env: Environment) -> None:
    """An entity sees its own runs in the queues, and no workers."""
    async with env:
        admin, npc = await two_entities(env)
        await env.settle()
        (queue,) = (await admin.get("/v1/queues")).json["items"]
        (own,) = (await npc.get("/v1/queues")).json["items"]

        assert (queue["name"], queue["workers"], sum(queue["runs"].values())) == ("default", 1, 3)
        assert sum(own["runs"].values()) == 1
        assert "many_waiting" in (await admin.get("/v1/workers")).json["items"][0]["workflows"]
        assert {(await npc.get(path)).status for path in ("/v1/workers", "/v1/duties")} == {403}
        assert (await admin.get("/v1/stuck?idle=1")).json == {"items": [], "cursor": None}
