"""All that Perdure, Run and the nouns of a Perdure offer works over a server too, or says why not.

Each public method has a row below; one without fails the test, so that a new method is in it from its first day.
"""

import inspect
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any, TypeAlias

import pytest

from perdure import (
    BadOption,
    Cron,
    Deferred,
    Log,
    Perdure,
    Request,
    Run,
    Signal,
    Stream,
    Webhook,
    expose,
    sleep,
    workflow,
)
from perdure.app.nouns.keys import Keys
from perdure.app.nouns.namespaces import Namespaces
from perdure.app.nouns.outbox import Outbox
from perdure.app.nouns.schedules import Schedules
from perdure.app.nouns.workers import Queues, Workers
from perdure.http.remote import views
from perdure.testing import Environment
from tests.server.asgi_transport import over_http

go = Signal("parity-go", int)
decision = Deferred("parity-decision", bool)
total = Request("parity-total", int, int)
parts = Stream("parity-parts", str)


@workflow
async def parity_flow(n: int = 1) -> int:
    expose("n", lambda: n)
    parts.publish("a")
    asked = await total.receive()
    asked.answer(asked.value + n)
    await decision.wait()
    return n + await go.receive()


@workflow
async def parity_failing() -> None:
    raise ValueError("no stock")


@workflow
async def parity_steps() -> None:
    for _ in range(5):
        await sleep(1)


Asked: TypeAlias = Callable[[Perdure, Run[Any]], Awaitable[object]]


async def _first(items: Any) -> object:
    async for item in items:
        return item
    return None


async def _failed(app: Perdure) -> Run[None]:
    run = await app.start(parity_failing.options(id="failed", on_conflict="replace"))
    with pytest.raises(Exception, match="no stock"):
        await run.result()
    return run


DAILY = Cron("0 3 * * *")
PAST = datetime(2020, 1, 1, tzinfo=UTC)
WORKS: dict[str, Asked] = {
    "Perdure.start": lambda app, _: app.start(parity_flow.options(id="a"), 1),
    "Perdure.start_json": lambda app, _: app.start_json("parity_flow", b'{"n": 1}', id="b"),
    "Perdure.start_many": lambda app, _: app.start_many(parity_flow.call(1), parity_flow.call(2)),
    "Perdure.get": lambda app, run: app.get(run.id),
    "Perdure.list": lambda app, _: app.list(where="status = 'running'", schedule="none"),
    "Perdure.count": lambda app, _: app.count(by="entity_id"),
    "Perdure.stuck": lambda app, _: app.stuck(30, limit=5),
    "Perdure.subscribe": lambda app, _: _first(app.subscribe(where="workflow = 'parity_flow'")),
    "Perdure.pause_all": lambda app, _: app.pause_all(where="true", dry_run=True),
    "Perdure.cancel_all": lambda app, _: app.cancel_all(where="id = :id", params={"id": "nobody"}, reason="x"),
    "Perdure.terminate_all": lambda app, _: app.terminate_all(where="id = 'nobody'"),
    "Perdure.resume_all": lambda app, _: app.resume_all(where="id = 'nobody'"),
    "Perdure.retry_all": lambda app, _: app.retry_all(where="id = 'nobody'"),
    "Perdure.broadcast": lambda app, _: app.broadcast(go, 1, where="id = 'nobody'", delay=60),
    "Perdure.duties": lambda app, _: app.duties(),
    "Run.describe": lambda _, run: run.describe(),
    "Run.explain": lambda _, run: run.explain(),
    "Run.set_attributes": lambda _, run: run.set_attributes(tier=2, gone=None),
    "Run.deferreds": lambda _, run: run.deferreds(),
    "Run.query": lambda _, run: run.query("n"),
    "Run.snapshot": lambda _, run: run.snapshot(),
    "Run.stream": lambda _, run: _first(run.stream(parts)),
    "Run.events": lambda _, run: _first(run.events(newest_first=True, limit=1)),
    "Run.children": lambda _, run: run.children(),
    "Run.attempts": lambda _, run: run.attempts(),
    "Run.unread": lambda _, run: run.unread(),
    "Run.set_aside": lambda _, run: run.set_aside(),
    "Run.ask": lambda _, run: run.ask(total, 4),
    "Run.resolve": lambda _, run: run.resolve(decision, True),
    "Run.pause": lambda _, run: run.pause("lunch"),
    "Run.resume": lambda _, run: run.resume(),
    "Run.fork": lambda _, run: run.fork(1, id="forked", input={"n": 7}, reason="what if"),
    "Run.signal": lambda _, run: run.signal(go, 4, id="once"),
    "Run.result": lambda _, run: run.result(),
    "Run.cancel": lambda app, _: _then(app.get("a"), lambda found: found.cancel("enough")),
    "Run.terminate": lambda app, _: _then(app.get("b"), lambda found: found.terminate("enough")),
    "Run.retry": lambda app, _: _then(_failed(app), lambda found: found.retry("again")),
    "Perdure.run": lambda app, _: _shown(app),
    "Namespaces.create": lambda app, _: app.namespaces.create("blue"),
    "Namespaces.list": lambda app, _: app.namespaces.list(),
    "Namespaces.get": lambda app, _: app.namespaces.get("blue"),
    "Namespaces.delete": lambda app, _: app.namespaces.delete("blue"),
    "Schedules.create": lambda app, _: app.schedules.create("s/1", parity_flow.call(3), DAILY),
    "Schedules.put": lambda app, _: app.schedules.put("s/1", parity_flow.options(queue="slow").call(4), DAILY),
    "Schedules.update": lambda app, _: app.schedules.update("s/1", jitter=timedelta(seconds=5), starts_at=PAST),
    "Schedules.get": lambda app, _: app.schedules.get("s/1"),
    "Schedules.list": lambda app, _: app.schedules.list(),
    "Schedules.pause": lambda app, _: app.schedules.pause("s/1", "holidays"),
    "Schedules.resume": lambda app, _: app.schedules.resume("s/1"),
    "Schedules.trigger": lambda app, _: app.schedules.trigger("s/1"),
    "Schedules.backfill": lambda app, _: app.schedules.backfill("s/1", PAST, PAST + timedelta(days=2)),
    "Schedules.delete": lambda app, _: app.schedules.delete("s/1"),
    "Keys.create": lambda app, _: app.keys.create("ci", role="reader", expires=timedelta(days=1)),
    "Keys.list": lambda app, _: app.keys.list(),
    "Keys.revoke": lambda app, _: _then(app.keys.list(), lambda keys: app.keys.revoke(keys[0].key_id)),
    "Outbox.add": lambda app, _: app.outbox.add(
        "crm", Webhook("https://crm.example", secret="s" * 24), events=("run.*",)
    ),
    "Outbox.update": lambda app, _: app.outbox.update("crm", target=Log(), workflows=["parity_flow"]),
    "Outbox.get": lambda app, _: app.outbox.get("crm"),
    "Outbox.list": lambda app, _: app.outbox.list(),
    "Outbox.pause": lambda app, _: app.outbox.pause("crm", "holidays"),
    "Outbox.resume": lambda app, _: app.outbox.resume("crm"),
    "Outbox.test": lambda app, _: app.outbox.test("crm"),
    "Outbox.dead_letters": lambda app, _: app.outbox.dead_letters("crm", limit=5),
    "Outbox.replay": lambda app, _: app.outbox.replay("crm", ["nobody"]),
    "Outbox.resend": lambda app, _: app.outbox.resend("crm", PAST),
    "Outbox.remove": lambda app, _: app.outbox.remove("crm"),
    "Workers.list": lambda app, _: app.workers.list(),
    "Queues.list": lambda app, _: app.queues.list(),
}
REFUSED: dict[str, Asked] = {
    "Perdure.start_within": lambda app, _: app.start_within(object(), parity_flow, 1),
    "Perdure.check": lambda app, _: app.check(),
    "Perdure.handle": lambda app, run: app.handle({"run_id": run.run_id}),
    "Perdure.process_available": lambda app, _: app.process_available(),
    "Perdure.tick": lambda app, _: app.tick(),
    "Perdure.worker_stats": lambda app, _: _stats(app),
}
# What is about the object itself, or shown by other tests: tokens in test_remote, keys in
# test_idempotency_keys, mounting and the bridge are local.
LOCAL = {"Perdure.sync", "Perdure.asgi", "Perdure.resolve", "Perdure.with_key", "Run.with_key"}


async def _stats(app: Perdure) -> object:
    return app.worker_stats()


async def _then(found: Awaitable[Any], act: Callable[[Any], Awaitable[object]]) -> object:
    return await act(await found)


async def _shown(app: Perdure) -> object:
    with pytest.raises(Exception, match="no stock"):
        await app.run(parity_failing)
    return True


def methods() -> set[str]:
    kinds = (Perdure, Run, Namespaces, Schedules, Outbox, Keys, Workers, Queues)
    return {
        f"{kind.__name__}.{name}"
        for kind in kinds
        for name, value in vars(kind).items()
        if not name.startswith("_") and inspect.isfunction(value)
    }


def test_every_method_is_here() -> None:
    known = [WORKS.keys(), REFUSED.keys(), LOCAL]
    assert methods() == set().union(*known), "a method without a row here, or a row without a method"
    assert len(methods()) == sum(map(len, known))


async def test_every_method_works_over_a_server_or_says_why_not(env: Environment) -> None:
    async with over_http(env) as (app, _):
        run = await app.start(parity_flow.options(id="o/17"), 3)
        await env.settle()
        answers = {name: await asked(app, run) for name, asked in WORKS.items()}
        for asked in REFUSED.values():
            with pytest.raises(BadOption, match="database itself|database of their own|works nothing"):
                await asked(app, run)

    expected: dict[str, object] = {
        "Perdure.count": {None: 2 + 1 + 2},
        "Run.query": 3,
        "Run.ask": 7,
        "Run.result": 7,
        "Schedules.delete": True,
    }
    assert {name: answers[name] for name in expected} == expected
    found: Any = answers
    assert found["Perdure.subscribe"].run.workflow == "parity_flow"
    assert found["Schedules.put"].arguments == {"n": 4}
    assert found["Schedules.update"].when == Cron("0 3 * * *", jitter=5, starts_at=PAST)
    assert found["Schedules.backfill"].accepted == 2
    assert found["Run.fork"].id == "forked"
    assert found["Run.explain"].id == "o/17"
    assert found["Outbox.add"].target == Webhook("https://crm.example", secret="***")
    assert (found["Outbox.get"].target, found["Outbox.get"].workflows) == (Log(), ("parity_flow",))
    assert (found["Outbox.resend"] > 0, found["Outbox.remove"]) == (True, True)
    assert [worker.liveness for worker in found["Workers.list"]] == ["alive"]
    assert {queue.name: queue.workers for queue in found["Queues.list"]} == {"default": 1, "slow": 0}
    assert [key.label for key in found["Keys.list"]] == ["ci"]


LOOKS: list[dict[str, Any]] = [
    {},
    {"limit": 3},
    {"limit": 3, "after": 1},
    {"newest_first": True},
    {"newest_first": True, "limit": 3},
    {"newest_first": True, "before": 3},
]


@pytest.mark.parametrize("look", LOOKS, ids=str)
async def test_the_events_of_many_pages_are_those_of_the_database(
    env: Environment, monkeypatch: pytest.MonkeyPatch, look: dict[str, Any]
) -> None:
    monkeypatch.setattr(views, "EVENTS_PAGE", 2)
    async with over_http(env) as (app, _):
        here = await env.app.start(parity_steps)
        await env.alive(here.result())
        run = await app.get(here.id)
        expected = [event.seq async for event in here.events(**look)]
        assert len(expected) > 1
        assert [event.seq async for event in run.events(**look)] == expected


async def test_what_is_changed_over_a_server_is_what_was_meant(env: Environment) -> None:
    """An answer alone does not tell: that something was paused instead is seen by who looks."""
    async with over_http(env) as (app, _):
        made = await app.keys.create("ci", role="reader", expires=60)
        (key,) = await env.app.keys.list()
        assert (key.key_id, key.expires_at) == (made.key_id, key.created_at + timedelta(seconds=60))

        await app.outbox.add("log", Log(), events=["run.*"])
        await app.outbox.pause("log", "holidays")
        assert (await env.app.outbox.get("log")).reason == "holidays"
        await app.outbox.resume("log")
        assert (await env.app.outbox.get("log")).state == "active"

        await app.schedules.create("s", parity_flow.call(3), DAILY)
        await app.schedules.pause("s", "holidays")
        assert (await env.app.schedules.get("s")).paused
        await app.schedules.resume("s")
        assert not (await env.app.schedules.get("s")).paused
