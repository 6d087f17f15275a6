"""Who reaches what: every route, by every role, of every namespace and entity, with the ids of another tenant.

Each route has a row in REQUESTS; a new one without a row fails. What may not be reached is not shown and not changed.
"""

from itertools import product
from typing import Any, NamedTuple
from urllib.parse import quote

from perdure import Stream, expose, sleep, workflow
from perdure.http.access import ROLES
from perdure.http.openapi import document
from perdure.http.routes import ROUTES
from perdure.http.table import Route, Scope
from perdure.testing import Environment
from tests.server.in_process import Answer, Caller
from tests.server.keyed import caller_with, key_for

# Stands in everything that the other tenant has.
HUSH = "hush-hush"
# Is shown to nobody at all.
SECRET = "a secret of twenty-four bytes"
NIGHTLY = {"type": "cron", "expression": "0 3 * * *"}
lines = Stream("matrix-lines", str)


@workflow
async def matrix_flow(note: str = "") -> None:
    expose("note", lambda: note)
    lines.publish(note)
    await sleep(3600)


START = {"workflow": "matrix_flow", "id": "theirs", "entity_id": "npc-1", "on_conflict": "terminate"}
SCHEDULED = {"call": {"workflow": "matrix_flow"}, "when": NIGHTLY}
ALL = {"where": "true"}
THEIRS = {"where": "entity_id = 'npc-1' or true"}
# By route the body, and what stands for the parameters of its path besides the id of a run of another tenant.
REQUESTS: dict[str, Any] = {
    "GET /health": None,
    "GET /ready": None,
    "GET /version": None,
    "GET /openapi.json": None,
    "GET /docs": None,
    "POST /v1/runs": START,
    "POST /v1/runs/batch": {"runs": [START, START | {"entity_id": None}]},
    "GET /v1/runs": None,
    "GET /v1/runs/count": None,
    "GET /v1/runs/{id}": None,
    "GET /v1/runs/{id}/result": None,
    "GET /v1/runs/{id}/events": None,
    "GET /v1/runs/{id}/children": None,
    "GET /v1/runs/{id}/attempts": None,
    "GET /v1/runs/{id}/messages": None,
    "GET /v1/runs/{id}/deferreds": None,
    "GET /v1/runs/{id}/queries": None,
    "GET /v1/runs/{id}/queries/{name}": None,
    "GET /v1/runs/{id}/streams/{name}": None,
    "GET /v1/runs/{id}/explain": None,
    "POST /v1/runs/{id}/signals": {"name": "x", "payload": 1},
    "POST /v1/runs/{id}/requests": {"name": "x", "value": 1, "timeout": 1},
    "POST /v1/runs/{id}/deferreds/{name}": {"value": 1},
    "POST /v1/deferreds/{token}": {"value": 1},
    "GET /v1/deferreds/{token}": None,
    "POST /v1/runs/{id}/cancel": {"force": True},
    "POST /v1/runs/{id}/terminate": {},
    "POST /v1/runs/{id}/resume": {},
    "POST /v1/runs/{id}/pause": {},
    "POST /v1/runs/{id}/retry": {},
    "POST /v1/runs/{id}/fork": {"at": 1, "id": "forked"},
    "PATCH /v1/runs/{id}/attributes": {"attributes": {"note": "gone"}},
    "POST /v1/bulk/cancel": ALL,
    "POST /v1/bulk/terminate": THEIRS,
    "POST /v1/bulk/pause": THEIRS,
    "POST /v1/bulk/resume": ALL,
    "POST /v1/bulk/retry": ALL,
    "POST /v1/bulk/signal": THEIRS | {"name": "x", "payload": 1},
    "GET /v1/subscribe": None,
    "GET /v1/schedules": None,
    "POST /v1/schedules": {"name": "nightly", **SCHEDULED},
    "GET /v1/schedules/{name}": None,
    "PUT /v1/schedules/{name}": SCHEDULED,
    "PATCH /v1/schedules/{name}": {"when": {"zone": "Europe/Berlin"}},
    "DELETE /v1/schedules/{name}": None,
    "POST /v1/schedules/{name}/pause": {},
    "POST /v1/schedules/{name}/resume": {},
    "POST /v1/schedules/{name}/trigger": {},
    "POST /v1/schedules/{name}/backfill": {"start": "2020-01-01T00:00:00Z", "end": "2020-01-03T00:00:00Z"},
    "GET /v1/outbox": None,
    "POST /v1/outbox": {"name": "new", "target": {"type": "log"}, "events": ["run.*"]},
    "GET /v1/outbox/{name}": None,
    "PATCH /v1/outbox/{name}": {"target": {"type": "log"}},
    "DELETE /v1/outbox/{name}": None,
    "POST /v1/outbox/{name}/pause": {},
    "POST /v1/outbox/{name}/resume": {},
    "POST /v1/outbox/{name}/test": {},
    "GET /v1/outbox/{name}/dead-letters": None,
    "POST /v1/outbox/{name}/replay": {},
    "POST /v1/outbox/{name}/resend": {"since": "2020-01-01T00:00:00Z"},
    "GET /v1/workers": None,
    "GET /v1/queues": None,
    "GET /v1/duties": None,
    "GET /v1/stuck": None,
    "POST /v1/workers": {"name": "w", "queues": ["default"], "workflows": {"matrix_flow": {}}},
    "POST /v1/workers/{worker_id}/renew": {"epoch": 1},
    "DELETE /v1/workers/{worker_id}": None,
    "POST /v1/workers/{worker_id}/claim-tasks": {"epoch": 1, "holding": []},
    "POST /v1/workers/{worker_id}/tasks/{task_id}/complete": {"epoch": 1, "attempt": 1, "result": None},
    "POST /v1/workers/{worker_id}/tasks/{task_id}/fail": {"epoch": 1, "attempt": 1, "error": {"type": "E"}},
    "POST /v1/workers/{worker_id}/tasks/{task_id}/heartbeat": {"epoch": 1, "attempt": 1},
    "POST /v1/workers/{worker_id}/claim-runs": {"epoch": 1, "holding": []},
    "GET /v1/workers/{worker_id}/runs/{run_id}": None,
    "POST /v1/workers/{worker_id}/advance": {"epoch": 1, "runs": [{"run_id": "theirs", "after_seq": 1}]},
    "GET /v1/workers/{worker_id}/stream": None,
    "POST /v1/workers/{worker_id}/listen": {"epoch": 1, "after": 0},
    "POST /v1/workers/{worker_id}/announce": {"epoch": 1, "names": ["any"]},
    "GET /v1/workers/{worker_id}/runs/{run_id}/messages": None,
    "GET /v1/namespaces": None,
    "POST /v1/namespaces": {"name": "made"},
    "GET /v1/namespaces/{name}": None,
    "DELETE /v1/namespaces/{name}": None,
    "POST /v1/keys": {"label": "more", "role": "admin"},
    "GET /v1/keys": None,
    "DELETE /v1/keys/{key_id}": None,
    "POST /v1/session": {"key": "pdk_wrong"},
    "DELETE /v1/session": None,
}
# What is about the whole database: an admin of one namespace has no right to it, or sees its own alone.
OF_THE_DATABASE = {
    "GET /v1/namespaces",
    "POST /v1/namespaces",
    "POST /v1/keys",
    "GET /v1/keys",
    "DELETE /v1/keys/{key_id}",
}


class Cell(NamedTuple):
    """A key: what it may do, in which namespaces, for which entity."""

    role: str
    namespaces: tuple[str, ...]
    entity_id: str | None

    def has_right(self, route: Route) -> bool:
        """Whether the other tenant's things are its own."""
        if route.scope is Scope.OPEN:
            return True
        if route.scope not in ROLES[self.role] or self.entity_id is not None:
            return False
        return not self.namespaces or (self.namespaces == ("acme",) and name_of(route) not in OF_THE_DATABASE)


CELLS = [Cell(*each) for each in product(ROLES, [(), ("acme",), ("beta",)], [None, "npc-42"])]


def name_of(route: Route) -> str:
    return f"{route.method} {route.path}"


def test_every_route_has_its_row() -> None:
    assert list(REQUESTS) == [name_of(route) for route in ROUTES]


class World:
    """The other tenant: a run, a schedule, a worker, a key and a namespace, each with something to hide."""

    def __init__(self, root: Caller, run_id: str, key_id: str, worker_id: str) -> None:
        self.root = root
        self._run_id = run_id
        self._key_id = key_id
        self._worker_id = worker_id

    async def ask(self, call: Caller, route: Route) -> Answer:
        path = route.path.replace("{id}", "theirs").replace("{key_id}", self._key_id).replace("{token}", "nonsense")
        path = path.replace("{worker_id}", self._worker_id).replace("{task_id}", self._run_id)
        path = path.replace("{run_id}", self._run_id)
        name = {
            "schedules": "nightly",
            "namespaces": "acme",
            "queries": "note",
            "streams": "matrix-lines",
            "outbox": "crm",
        }
        noun = next((noun for noun in path.split("/") if noun in name), "")
        path = path.replace("{name}", name.get(noun, "any"))
        query = "?namespace=acme" if route.has_namespace else ""
        query += f"&run_id={quote(self._run_id)}" if "{id}" in route.path else ""
        return await call(route.method, path + query, REQUESTS[name_of(route)])

    async def state(self) -> list[Any]:
        """All that nobody else may change."""
        found = [
            (await self.root.get(f"/v1/{path}")).json
            for path in (
                "runs/theirs?namespace=acme",
                "runs/theirs/messages?namespace=acme",
                "runs/theirs/events?namespace=acme",
                "schedules/nightly?namespace=acme",
                "outbox?namespace=acme",
                "runs/count?namespace=acme&where=entity_id%20%3D%20'npc-1'",
                "runs/count?namespace=beta",
                "workers?namespace=acme",
                "namespaces",
            )
        ]
        keys = (await self.root.get("/v1/keys")).json["items"]
        return [*found, sorted((key["key_id"], key["revoked_at"]) for key in keys)]


async def the_other_tenant(env: Environment) -> World:
    root = caller_with(env, await key_for(env))
    for name in ("acme", "beta"):
        await root.post("/v1/namespaces", {"name": name})
    body = START | {"input": [HUSH], "attributes": {"note": HUSH}}
    run = (await root.post("/v1/runs?namespace=acme", body)).json
    call = {"workflow": "matrix_flow", "input": [HUSH], "entity_id": "npc-1"}
    await root.post("/v1/schedules?namespace=acme", {"name": "nightly", "call": call, "when": NIGHTLY})
    target = {"type": "webhook", "url": f"https://crm.example/{HUSH}", "secret": SECRET}
    sink = {"name": "crm", "target": target, "events": ["run.completed"], "workflows": ["none"]}
    assert (await root.post("/v1/outbox?namespace=acme", sink)).status == 201
    key = (await root.post("/v1/keys", {"label": HUSH, "role": "reader"})).json
    worker = {"name": HUSH, "queues": ["theirs"], "workflows": {"matrix_flow": {}}}
    worker_id = (await root.post("/v1/workers?namespace=acme", worker)).json["worker_id"]
    return World(root, run["run_id"], key["key_id"], worker_id)


async def test_nobody_reaches_what_another_tenant_has(quick_path: Any) -> None:
    """Every cell without the right sees nothing of it and changes nothing; no cell breaks the server."""
    async with Environment(str(quick_path / "test.db")) as env:
        world = await the_other_tenant(env)
        keys = {cell: await key_for(env, **cell._asdict()) for cell in CELLS}
        await env.settle()
        before = await world.state()
        reached: dict[str, set[bool]] = {}
        for cell, route in product(CELLS, ROUTES):
            has_right = cell.has_right(route)
            if has_right and route.method != "GET":
                continue
            where = f"{cell} {name_of(route)}"
            answer = await world.ask(caller_with(env, keys[cell]), route)
            assert answer.status < 500, where
            assert SECRET not in answer.body.decode(), where
            assert has_right or HUSH not in answer.body.decode(), where
            is_refused = (not has_right and route.scope not in ROLES[cell.role]) or (
                cell.namespaces == ("beta",) and route.has_namespace and route.scope is not Scope.OPEN
            )
            if is_refused:
                assert (answer.status, answer.json["error"]) == (403, "NotAllowed"), where
            elif cell.entity_id is not None and "{id}" in route.path:
                assert (answer.status, answer.json["error"]) == (404, "RunNotFound"), where
            if has_right:
                reached.setdefault(name_of(route), set()).add(HUSH in answer.body.decode())
        assert await world.state() == before
    # Where there is something to hide, who has the right sees it: else nothing would be shown by the rest.
    shown = {
        "GET /v1/runs",
        "GET /v1/runs/{id}",
        "GET /v1/runs/{id}/events",
        "GET /v1/schedules/{name}",
        "GET /v1/outbox/{name}",
        "GET /v1/keys",
    }
    assert {name: reached[name] for name in shown} == {name: {True} for name in shown}


def test_the_document_says_of_each_route_who_may_use_it_and_how_it_answers() -> None:
    """Clients are made from it: what it leaves out they cannot send, or take for an error."""
    paths = document(ROUTES)["paths"]
    assert sum(map(len, paths.values())) == len(ROUTES)
    for route in ROUTES:
        told = paths[route.path][route.method.lower()]
        assert told.get("security") == (None if route.scope is Scope.OPEN else [{"key": []}]), route
        assert ("requestBody" in told) == (route.body is not None), route
        for status in (route.status, *(status for status, _ in route.also)):
            assert "application/problem+json" not in told["responses"][str(status)]["content"], route
