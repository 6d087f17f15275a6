"""Who may call: keys, scopes, namespaces and entities, over every route of the table."""

from typing import Any
from urllib.parse import quote
from zlib import crc32

import pytest

from perdure import sleep, workflow
from perdure.access_keys import id_in
from perdure.app.internals import engine_of
from perdure.engine.ports import KeyRequest
from perdure.http.access import ROLES
from perdure.http.routes import ROUTES
from perdure.http.table import Scope
from perdure.testing import Environment
from perdure.testing.faults import Fault
from tests.server.in_process import Caller
from tests.server.keyed import caller_with, key_for


@workflow
async def http_owned() -> None:
    await sleep(3600)


@workflow
async def http_secret(secret: str) -> str:
    await sleep(3600)
    return secret


@workflow
async def http_parent() -> None:
    await http_owned.options(id="child", entity_id="npc-1")()


async def test_a_key_is_made_used_and_revoked(env: Environment) -> None:
    """The database keeps no more of it than its hash; once revoked it is refused within a second."""
    async with env:
        admin = caller_with(env, await key_for(env))
        made = (await admin.post("/v1/keys", {"label": "ci", "role": "reader"})).json
        ci = caller_with(env, made["key"])
        assert (await ci.get("/v1/runs")).status == 200
        assert (await ci.post("/v1/runs", {"workflow": "http_owned"})).json["error"] == "NotAllowed"

        assert (await admin("DELETE", f"/v1/keys/{made['key_id']}")).json == {"revoked": True}
        await env.pass_time(1.1)

        assert (await ci.get("/v1/runs")).status == 401
        listed = (await admin.get("/v1/keys")).json["items"]
        assert {key["label"]: key["revoked_at"] is None for key in listed} == {"test": True, "ci": False}
        assert made["key"] not in str(listed)


async def test_the_last_key_of_an_admin_stays(env: Environment) -> None:
    async with env:
        admin = caller_with(env, await key_for(env))
        (only,) = (await admin.get("/v1/keys")).json["items"]
        refused = await admin("DELETE", f"/v1/keys/{only['key_id']}")

        assert (refused.status, refused.json["error"]) == (409, "LastAdminKey")
        assert (await admin("DELETE", "/v1/keys/nobody")).json["error"] == "KeyNotFound"


async def test_a_key_ends_when_its_time_is_over(env: Environment) -> None:
    async with env:
        call = caller_with(env, await key_for(env, role="reader", expires_in_ms=5_000))
        assert (await call.get("/v1/runs")).status == 200
        await env.pass_time(6)
        assert (await call.get("/v1/runs")).status == 401


async def test_another_namespace_is_refused_there_or_not(env: Environment) -> None:
    async with env:
        await env.app.namespaces.create("acme")
        call = caller_with(env, await key_for(env, namespaces=("acme",)))
        for namespace in ("main", "nobody"):
            answer = await call.get(f"/v1/runs?namespace={namespace}")
            assert (answer.status, answer.json["error"]) == (403, "NotAllowed")
        assert (await call.get("/v1/runs")).status == 200


async def test_a_key_of_an_entity_sees_its_own_runs_alone(env: Environment) -> None:
    """Those of others are missing, not forbidden: who asks learns nothing of them."""
    async with env:
        admin = caller_with(env, await key_for(env))
        npc = caller_with(env, await key_for(env, role="operator", entity_id="npc-42"))
        await admin.post("/v1/runs", {"workflow": "http_owned", "id": "other", "entity_id": "npc-1"})
        own = (await npc.post("/v1/runs", {"workflow": "http_owned", "id": "own"})).json

        assert own["entity_id"] == "npc-42"
        assert [run["id"] for run in (await npc.get("/v1/runs")).json["items"]] == ["own"]
        for method, url in (("GET", "/v1/runs/other"), ("POST", "/v1/runs/other/cancel")):
            answer = await npc(method, url, {} if method == "POST" else None)
            assert answer.json["error"] == "RunNotFound"
        assert (await npc.get("/v1/runs?entity_id=npc-1")).json["items"] == []
        # Whether there is such an entity makes no difference.
        for entity_id in ("npc-1", "npc-none"):
            refused = await npc.post("/v1/runs", {"workflow": "http_owned", "entity_id": entity_id})
            assert (refused.status, refused.json["error"]) == (403, "NotAllowed")
            assert refused.json["detail"].endswith("starts runs of its own entity alone; leave entity_id away")


async def test_a_key_without_the_right_is_told_which_scope_it_takes(env: Environment) -> None:
    async with env:
        reader = caller_with(env, await key_for(env, role="reader"))
        refused = (await reader.get("/v1/keys")).json
        assert refused["detail"].endswith("has no right to admin; use one with the scope admin")
        assert "key" not in refused["title"] or "good" not in refused["title"]


async def test_key_after_key_is_answered_with_429(env: Environment) -> None:
    """A right key is never kept waiting."""
    async with env:
        key = await key_for(env)
        wrong = caller_with(env, key[:-1] + ("0" if key[-1] != "0" else "1"))
        application = env.app.asgi()
        tries = [Caller(application, authorization="Bearer nonsense") for _ in range(12)]
        statuses = [(await each.get("/v1/runs")).status for each in tries]

        assert (statuses[0], statuses[-1]) == (401, 429)
        assert (await Caller(application, authorization=f"Bearer {key}").get("/v1/runs")).status == 200
        assert (await wrong.get("/v1/runs")).status == 401


@pytest.mark.parametrize("role", ROLES)
async def test_every_route_asks_for_its_scope(quick_path: Any, role: str) -> None:
    """The matrix is made from the table, so a new route is in it from its first day."""
    async with Environment(str(quick_path / "test.db")) as env:
        call = caller_with(env, await key_for(env, role=role))
        nobody = Caller(env.app.asgi())
        for route in ROUTES:
            url = route.path.replace("{", "").replace("}", "")
            body: Any = {} if route.method in {"POST", "PATCH"} else None
            answer = await call(route.method, url, body)
            is_allowed = route.scope is Scope.OPEN or route.scope in ROLES[role]
            assert (answer.status == 403) == (not is_allowed), f"{route.method} {route.path}"
            assert answer.status < 500, f"{route.method} {route.path}"
            is_open = (await nobody(route.method, url, body)).status != 401
            assert is_open == (route.scope is Scope.OPEN), f"{route.method} {route.path}"


@pytest.mark.parametrize("where", ["true", "true) or (true", "entity_id = 'npc-1'", "true) or (entity_id = 'npc-1'"])
async def test_a_key_of_an_entity_counts_its_own_runs_alone(env: Environment, where: str) -> None:
    """Also where a filter closes a bracket that it has not opened: it stands for itself, not in another's text."""
    async with env:
        admin = caller_with(env, await key_for(env))
        npc = caller_with(env, await key_for(env, role="operator", entity_id="npc-42"))
        for number in range(3):
            await admin.post("/v1/runs", {"workflow": "http_owned", "id": f"other-{number}", "entity_id": "npc-1"})
        await npc.post("/v1/runs", {"workflow": "http_owned", "id": "own"})

        for url in (f"/v1/runs/count?where={quote(where)}", f"/v1/runs/count?by=entity_id&where={quote(where)}"):
            answer = await npc.get(url)
            if ")" in where:
                assert (answer.status, answer.json["error"]) == (422, "BadFilter")
            else:
                assert answer.json["count"] == (1 if where == "true" else 0)
                assert "npc-1" not in str(answer.json)


@pytest.mark.parametrize("policy", ["return", "reject", "replace", "terminate"])
async def test_a_key_of_an_entity_cannot_take_the_id_of_a_run_of_another(env: Environment, policy: str) -> None:
    """To start a run under its id would end it, and the refusal would tell what it was started with."""
    async with env:
        admin = caller_with(env, await key_for(env))
        npc = caller_with(env, await key_for(env, role="operator", entity_id="npc-42"))
        start = {"workflow": "http_secret", "id": "taken"}
        first = (await admin.post("/v1/runs", {**start, "entity_id": "npc-1", "input": ["hush"]})).json

        body = {**start, "input": ["mine"], "on_conflict": policy}
        refused = await npc.post("/v1/runs", body)
        (of_many,) = (await npc.post("/v1/runs/batch", {"runs": [body]})).json["items"]

        assert (refused.status, refused.json["error"]) == (409, "IdConflict")
        assert of_many["problem"]["error"] == "IdConflict"
        assert "hush" not in str(refused.json) + str(of_many)
        assert first["run_id"] not in str(refused.json) + str(of_many)
        now = (await admin.get("/v1/runs/taken")).json
        assert (now["run_id"], now["status"]) == (first["run_id"], first["status"])


async def test_an_admin_of_an_entity_makes_and_sees_no_keys_beyond_it(env: Environment) -> None:
    """Else a key for one entity would be worth one for all of them."""
    async with env:
        other = await key_for(env)
        npc = caller_with(env, await key_for(env, entity_id="npc-42"))
        for wanted in ({}, {"entity_id": "npc-1"}):
            refused = await npc.post("/v1/keys", {"label": "more", "role": "admin", **wanted})
            assert (refused.status, refused.json["error"]) == (403, "NotAllowed")
        made = await npc.post("/v1/keys", {"label": "own", "role": "reader", "entity_id": "npc-42"})

        assert made.status == 201
        assert {key["entity_id"] for key in (await npc.get("/v1/keys")).json["items"]} == {"npc-42"}
        others = [key for key in (await caller_with(env, other).get("/v1/keys")).json["items"] if not key["entity_id"]]
        refused = await npc("DELETE", f"/v1/keys/{others[0]['key_id']}")
        assert refused.json["error"] == "KeyNotFound"


async def test_a_key_of_an_entity_finds_no_other_run_by_any_way(env: Environment) -> None:
    """Not by its run_id either, nor among the children of a run of its own."""
    async with env:
        admin = caller_with(env, await key_for(env))
        npc = caller_with(env, await key_for(env, role="operator", entity_id="npc-42"))
        other = (await admin.post("/v1/runs", {"workflow": "http_owned", "id": "other", "entity_id": "npc-1"})).json
        own = (await npc.post("/v1/runs", {"workflow": "http_parent", "id": "own"})).json
        await env.pass_time(1)

        for route in ROUTES:
            if "{id}" in route.path and route.method == "GET":
                for id in ("-", "other"):
                    path = route.path.replace("{id}", id).replace("{name}", "any")
                    answer = await npc.get(f"{path}?run_id={other['run_id']}")
                    assert (answer.status, answer.json["error"]) == (404, "RunNotFound"), path
        children = f"/v1/runs/own/children?run_id={own['run_id']}"
        assert [run["entity_id"] for run in (await admin.get(children)).json["items"]] == ["npc-1"]
        assert (await npc.get(children)).json["items"] == []


async def test_an_admin_of_a_namespace_sees_and_ends_its_own_keys_alone(env: Environment) -> None:
    """A key for every namespace is none of its own, though it names no other one."""
    async with env:
        await key_for(env)
        wide = (await caller_with(env, await key_for(env)).get("/v1/keys")).json["items"][0]["key_id"]
        acme = caller_with(env, await key_for(env, namespaces=("acme",)))

        assert [key["namespaces"] for key in (await acme.get("/v1/keys")).json["items"]] == [["acme"]]
        assert (await acme("DELETE", f"/v1/keys/{wide}")).json["error"] == "KeyNotFound"
        for namespaces in ([], ["main"], ["acme", "main"]):
            refused = await acme.post("/v1/keys", {"label": "more", "role": "reader", "namespaces": namespaces})
            assert (refused.status, refused.json["error"]) == (403, "NotAllowed")


async def test_a_key_with_the_right_id_and_another_secret_is_refused(env: Environment) -> None:
    """The id is no secret, and the checksum can be computed by all; also while the right key is known for a second."""
    async with env:
        key = await key_for(env)
        body = f"{key.rpartition('_')[0].rpartition('_')[0]}_{'0' * 64}"
        application = env.app.asgi()
        right = Caller(application, authorization=f"Bearer {key}")
        forged = Caller(application, authorization=f"Bearer {body}_{crc32(body.encode()):08x}")

        assert id_in(f"{body}_{crc32(body.encode()):08x}") == id_in(key)
        assert (await forged.get("/v1/runs")).status == 401
        assert (await right.get("/v1/runs")).status == 200
        assert (await forged.get("/v1/runs")).status == 401


async def test_who_may_only_start_ends_no_run_by_it(env: Environment) -> None:
    """`terminate` ends the run that has the id, which is steering."""
    async with env:
        engine = engine_of(env.app)
        assert engine is not None
        made = await engine.access_keys.create(KeyRequest("starts", ("read", "start")))
        call = caller_with(env, made.key)
        first = await call.post("/v1/runs", {"workflow": "http_owned", "id": "kept"})
        refused = await call.post("/v1/runs", {"workflow": "http_owned", "id": "kept", "on_conflict": "terminate"})

        assert (first.status, refused.status, refused.json["error"]) == (201, 403, "NotAllowed")
        assert (await call.get("/v1/runs/kept")).json["run_id"] == first.json["run_id"]


async def test_who_shows_no_key_is_not_told_which_namespaces_there_are(env: Environment) -> None:
    """The refusal of a name that is nearly right names the right one, which is for callers with a key."""
    async with env:
        await env.app.namespaces.create("acme")
        nobody = Caller(env.app.asgi())
        for method in ("GET", "POST"):
            answers = [
                await nobody(method, f"/v1/deferreds/x?namespace={name}", {"value": 1} if method == "POST" else None)
                for name in ("acme", "acm")
            ]
            assert [answer.json["error"] for answer in answers] == ["BadToken", "BadToken"]
            assert answers[0].json["detail"] == answers[1].json["detail"]


async def test_an_admin_of_a_queue_makes_no_keys_beyond_it(env: Environment) -> None:
    async with env:
        gpu = caller_with(env, await key_for(env, queues=("gpu", "cpu")))
        for queues in ([], ["default"], ["gpu", "default"]):
            refused = await gpu.post("/v1/keys", {"label": "more", "role": "worker", "queues": queues})
            assert (refused.status, refused.json["error"]) == (403, "NotAllowed")
        made = await gpu.post("/v1/keys", {"label": "own", "role": "worker", "queues": ["gpu"]})
        assert made.status == 201


async def test_a_key_is_good_while_nothing_can_be_written(env: Environment) -> None:
    """That it was used is noted now and then; a full disk must not keep readers away for that."""
    async with env:
        call = caller_with(env, await key_for(env, role="reader"))
        await env.settle()
        env.store.fail_at(1, Fault.REFUSED)
        assert (await call.get("/v1/runs")).status == 200
