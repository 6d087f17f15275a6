"""Sinks over HTTP: what makes no sense is refused, and no secret is ever shown."""

from typing import Any

from perdure.testing import Environment
from tests.server.keyed import caller_with, key_for
from tests.server.remote_worker import admin_of

SECRET = "a secret of twenty-four bytes"
HOOK = {"type": "webhook", "url": "https://crm.example/hook", "secret": SECRET}
SINK = {"name": "crm", "target": HOOK, "events": ["run.*"]}


async def test_sinks_are_made_and_changed_over_http_and_never_show_a_secret(quick_path: Any) -> None:
    async with Environment(str(quick_path / "test.db")) as env:
        call = await admin_of(env)
        made = await call.post("/v1/outbox", SINK, idempotency_key="k-1")
        assert (made.status, made.json["target"]["secret"], made.json["state"]) == (201, "***", "active")
        again = await call.post("/v1/outbox", SINK, idempotency_key="k-1")
        assert (again.status, again.headers["idempotency-replayed"]) == (201, "true")
        assert (await call.post("/v1/outbox", SINK)).json["error"] == "SinkExists"

        rotated = {"target": HOOK | {"secret": ["env:NEW", SECRET]}, "concurrency": 2}
        changed = await call("PATCH", "/v1/outbox/crm", rotated)
        assert (changed.json["target"]["secret"], changed.json["concurrency"]) == (["env:NEW", "***"], 2)
        assert (await call.post("/v1/outbox/crm/pause", {"reason": "holidays"})).json["reason"] == "holidays"
        assert (await call.post("/v1/outbox/crm/resume", {})).json["state"] == "active"
        assert (await call.get("/v1/outbox/crm/dead-letters")).json == {"items": []}
        assert (await call("DELETE", "/v1/outbox/crm")).json == {"removed": True}
        assert (await call.get("/v1/outbox/crm")).status == 404


async def test_what_makes_no_sink_is_refused(quick_path: Any) -> None:
    """A secret as it is shown is none: it would replace the real one."""
    async with Environment(str(quick_path / "test.db")) as env:
        call = await admin_of(env)
        await call.post("/v1/outbox", SINK)
        targets = [HOOK | change for change in ({"secret": "***"}, {"secret": "short"}, {"url": "https://127.0.0.1/x"})]
        refused = [await call("PATCH", "/v1/outbox/crm", {"target": target}) for target in targets]
        refused += [await call.post("/v1/outbox", SINK | {"name": "b", "events": ["run.nothing"]})]
        assert [(each.status, each.json["error"]) for each in refused] == [(422, "BadSink")] * 4
        shapes: tuple[dict[str, Any], ...] = (
            {"target": {"type": "function"}},
            {},
            {"target": HOOK | {"secret": 7}},
            {"max_attempts": 0},
        )
        wrong = [await call("PATCH", "/v1/outbox/crm", body) for body in shapes]
        wrong += [await call.post("/v1/outbox/crm/resend", {"since": "2020-01-01T00:00:00"})]
        assert [each.status for each in wrong] == [422] * 5
        assert SECRET not in "".join(each.body.decode() for each in (*refused, *wrong))

        operator = caller_with(env, await key_for(env, role="operator"))
        statuses = [
            (await operator.post("/v1/outbox", SINK | {"name": "b"})).status,
            (await operator("PATCH", "/v1/outbox/crm", {"concurrency": 1})).status,
            (await operator.post("/v1/outbox/crm/pause", {})).status,
            (await operator.post("/v1/outbox/crm/replay", {"ids": ["none"]})).status,
        ]
        assert statuses == [403, 403, 200, 200]
