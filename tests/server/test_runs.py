"""Runs over HTTP: the same answers as in process, each error as a problem of its own class."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import msgspec
import pytest

from perdure import Request, Signal, Stream, activity, expose, sleep, workflow
from perdure import errors as all_errors
from perdure.access_keys import new_key
from perdure.errors import (
    BadFilter,
    IdConflict,
    PerdureError,
    RunClosed,
    RunNotFound,
    RunNotHeld,
    RunOpen,
    StoreUnavailable,
)
from perdure.http.access import anybody
from perdure.http.asgi import Application
from perdure.http.problems import error_of, problem_of, status_of
from perdure.testing import Environment
from tests.server.in_process import Caller

go = Signal("http-go", int)
add = Request("http-add", int, int)
numbers = Stream("http-numbers", int)


@activity
async def http_double(n: int) -> int:
    return n * 2


@workflow
async def http_adding(n: int, more: int = 1) -> int:
    expose("n", lambda: n)
    numbers.publish(n)
    doubled = await http_double(n)
    return doubled + await go.receive() + more


@workflow
async def http_asked() -> int:
    asked = await add.receive()
    asked.answer(asked.value + 1)
    return asked.value


@workflow
async def http_failing() -> None:
    raise ValueError("no stock")


@workflow
async def http_sleeping() -> None:
    await sleep(3600)


@asynccontextmanager
async def served(env: Environment) -> AsyncIterator[Caller]:
    async with env:
        yield Caller(env.app.asgi(authenticate=anybody), host="localhost")


async def test_a_run_is_started_signalled_and_its_result_read(env: Environment) -> None:
    async with served(env) as call:
        started = await call.post("/v1/runs", {"workflow": "http_adding", "input": {"n": 3}, "id": "o/17"})
        assert started.status == 201
        assert (started.json["id"], started.json["workflow"]) == ("o/17", "http_adding")

        open_still = await call.get("/v1/runs/o%2F17/result")
        assert (open_still.status, open_still.json["status"]) == (202, started.json["status"])

        sent = await call.post("/v1/runs/o%2F17/signals", {"name": "http-go", "payload": 5})
        assert sent.json == {"id": "o/17", "run_id": started.json["run_id"]}

        ended = await call.get("/v1/runs/o%2F17/result?wait=20")
        assert (ended.status, ended.json) == (200, {"status": "COMPLETED", "result": 12})


async def test_a_payload_that_the_run_would_set_aside_is_refused(env: Environment) -> None:
    """Its sender can mend it; in the run it would be a line in a log."""
    async with served(env) as call:
        await call.post("/v1/runs", {"workflow": "http_adding", "input": {"n": 3}, "id": "m"})
        await env.pass_time(5)
        wrong = {"name": "http-go", "payload": "five"}
        refused = await call.post("/v1/runs/m/signals", wrong)
        assert (refused.status, refused.json["error"]) == (422, "BadValue")
        assert "the run waits for another payload" in refused.json["detail"]
        assert (await call.post("/v1/runs/m/signals", wrong | {"force": True})).status == 200
        assert (await call.post("/v1/runs/m/signals", {"name": "other", "payload": "five"})).status == 200
        await call.post("/v1/runs/m/signals", {"name": "http-go", "payload": 5})
        assert (await call.get("/v1/runs/m/result?wait=20")).json["result"] == 12


async def test_the_same_id_again_gives_the_run_that_has_it(env: Environment) -> None:
    async with served(env) as call:
        body = {"workflow": "http_adding", "input": [3], "id": "o-1"}
        first, second = await call.post("/v1/runs", body), await call.post("/v1/runs", body)
        other = await call.post("/v1/runs", body | {"input": [4]})

        assert (first.status, second.status) == (201, 200)
        assert first.json["run_id"] == second.json["run_id"]
        assert (other.status, other.json["error"]) == (409, "IdConflict")


async def test_waiting_for_a_start_adds_the_result(env: Environment) -> None:
    async with served(env) as call:
        await call.post("/v1/runs", {"workflow": "http_adding", "input": [1], "id": "w"})
        await call.post("/v1/runs/w/signals", {"name": "http-go", "payload": 1})
        again = await call.post("/v1/runs?wait=20", {"workflow": "http_adding", "input": [1], "id": "w"})

        assert (again.json["status"], again.json["result"]) == ("COMPLETED", 4)


async def test_a_failed_run_tells_type_and_message(env: Environment) -> None:
    async with served(env) as call:
        await call.post("/v1/runs", {"workflow": "http_failing", "id": "f"})
        ended = await call.get("/v1/runs/f/result?wait=20")

        assert ended.json["status"] == "FAILED"
        error = ended.json["error"]
        assert (error["type"], error["message"]) == ("builtins.ValueError", "no stock")


async def test_a_batch_answers_each_in_order(env: Environment) -> None:
    """One that is refused harms no other."""
    async with served(env) as call:
        runs = [{"workflow": "http_adding", "input": [1], "id": "b-1"}, {"workflow": "nobody", "id": "b-2"}]
        found = (await call.post("/v1/runs/batch", {"runs": [*runs, {"workflow": "http_asked", "id": "b-3"}]})).json

        assert [each.get("run", {}).get("id") for each in found["items"]] == ["b-1", None, "b-3"]
        assert found["items"][1]["problem"]["error"] == "UnknownWorkflow"


async def test_lists_have_cursors_that_stay_under_writes(env: Environment) -> None:
    async with served(env) as call:
        for n in range(5):
            await call.post("/v1/runs", {"workflow": "http_sleeping", "id": f"l-{n}"})
            await env.pass_time(0.01)
        first = (await call.get("/v1/runs?limit=2&workflow=http_sleeping")).json
        await call.post("/v1/runs", {"workflow": "http_sleeping", "id": "later"})
        second = (await call.get(f"/v1/runs?limit=2&workflow=http_sleeping&after={first['cursor']}")).json

        assert [run["id"] for run in first["items"] + second["items"]] == ["l-4", "l-3", "l-2", "l-1"]


async def test_a_look_at_a_run_that_has_not_changed_is_answered_with_304(env: Environment) -> None:
    async with served(env) as call:
        await call.post("/v1/runs", {"workflow": "http_failing", "id": "e"})
        await call.get("/v1/runs/e/result?wait=20")
        first = await call.get("/v1/runs/e")
        again = await call.get("/v1/runs/e", if_none_match=first.headers["etag"])

        assert (first.status, again.status, again.body) == (200, 304, b"")


async def test_an_exact_run_is_named_by_its_run_id(env: Environment) -> None:
    """Where a proxy spoils slashes, `-` stands for the id; an id of another run is not found."""
    async with served(env) as call:
        started = (await call.post("/v1/runs", {"workflow": "http_sleeping", "id": "x"})).json
        run_id = started["run_id"]

        assert (await call.get(f"/v1/runs/-?run_id={run_id}")).json["id"] == "x"
        assert (await call.get(f"/v1/runs/y?run_id={run_id}")).status == 404


async def test_a_workflow_is_asked_and_answers(env: Environment) -> None:
    async with served(env) as call:
        await call.post("/v1/runs", {"workflow": "http_asked", "id": "q"})
        asked = await call.post("/v1/runs/q/requests", {"name": "http-add", "value": 4, "id": "web-1", "timeout": 20})
        again = await call.post("/v1/runs/q/requests", {"name": "http-add", "value": 4, "id": "web-1", "timeout": 20})

        assert asked.json == again.json == {"id": "web-1", "answer": 5}


async def test_what_a_run_shows_and_publishes_is_read(env: Environment) -> None:
    async with served(env) as call:
        await call.post("/v1/runs", {"workflow": "http_adding", "input": [7], "id": "s"})
        await call.post("/v1/runs/s/signals", {"name": "http-go", "payload": 0})
        await call.get("/v1/runs/s/result?wait=20")

        assert (await call.get("/v1/runs/s/queries/n")).json == 7
        assert (await call.get("/v1/runs/s/queries/m")).json["error"] == "QueryNotFound"
        assert [item["value"] for item in (await call.get("/v1/runs/s/streams/http-numbers")).json["items"]] == [7]


async def test_events_are_followed_as_frames_and_resumed(env: Environment) -> None:
    """Between stored and live nothing is lost, and nothing comes twice."""
    async with served(env) as call:
        await call.post("/v1/runs", {"workflow": "http_adding", "input": [1], "id": "ev"})
        stored: list[dict[str, Any]] = []
        async for frame in call.frames("/v1/runs/ev/events"):
            stored.append(frame)
            if len(stored) == 2:
                break
        await call.post("/v1/runs/ev/signals", {"name": "http-go", "payload": 1})
        # A browser that was cut off asks by the address it had, and says what it has seen since.
        again = _all_frames(call, "/v1/runs/ev/events?after=1", last_event_id=stored[-1]["id"])
        reading = asyncio.ensure_future(again)
        # Who follows looks again after a while.
        rest = await env.alive(reading)

        kinds = [frame["data"].get("kind") for frame in stored + rest]
        assert kinds == ["RunStarted", "ActivityCompleted", "SignalReceived", "RunCompleted", None]
        assert (rest[-1]["event"], rest[-1]["id"]) == ("end", rest[-2]["id"])


async def test_runs_are_cancelled_and_terminated(env: Environment) -> None:
    async with served(env) as call:
        await call.post("/v1/runs", {"workflow": "http_sleeping", "id": "c"})
        await call.post("/v1/runs", {"workflow": "http_sleeping", "id": "t"})
        await call.post("/v1/runs/c/cancel", {"reason": "sold out"})
        ended = await call.post("/v1/runs/t/terminate", {"reason": "enough"})
        cancelled = await call.get("/v1/runs/c/result?wait=20")

        assert (ended.json["status"], ended.json["error"]) == ("TERMINATED", "enough")
        assert cancelled.json == {
            "status": "CANCELLED",
            "error": {"type": "RunCancelled", "message": "sold out", "reason": "sold out"},
        }
        assert (await call.post("/v1/runs/t/cancel")).json["error"] == "RunClosed"

        # An end without a reason has a message all the same, under the name of the class in errors.py.
        await call.post("/v1/runs", {"workflow": "http_sleeping", "id": "n"})
        await call.post("/v1/runs/n/terminate")
        silent = (await call.get("/v1/runs/n/result?wait=20")).json["error"]
        assert silent == {"type": "RunTerminated", "message": "the run was terminated"}


@pytest.mark.parametrize(
    ("method", "url", "raw", "content", "status", "error"),
    [
        ("POST", "/v1/runs", b"{", "application/json", 400, "BadJson"),
        ("POST", "/v1/runs", b'{"workflow": "x"}', "text/plain", 415, "BadContentType"),
        ("POST", "/v1/runs", b'{"workflow": "x", "inptu": 1}', "application/json", 422, "BadField"),
        ("POST", "/v1/runs", b'{"workflow": "nobody"}', "application/json", 422, "UnknownWorkflow"),
        ("POST", "/v1/runs", b'{"workflow": "http_adding", "input": {}}', "application/json", 422, "BadArguments"),
        ("POST", "/v1/runs", b'{"workflow": "http_asked", "id": ""}', "application/json", 422, "BadId"),
        ("POST", "/v1/runs", b'{"workflow": "http_asked", "timeout": -1}', "application/json", 422, "BadOption"),
        ("GET", "/v1/runs/nobody", b"", "", 404, "RunNotFound"),
        ("GET", "/v1/runs?limit=0", b"", "", 422, "BadOption"),
        ("GET", "/v1/runs?limit=x", b"", "", 422, "BadField"),
        ("GET", "/v1/runs?sttus=failed", b"", "", 422, "BadField"),
        ("GET", "/v1/runs?status=faild", b"", "", 422, "BadOption"),
        ("GET", "/v1/runs?after=JUNK", b"", "", 422, "BadOption"),
        ("GET", "/v1/runs?where=true&after=JUNK", b"", "", 422, "BadOption"),
        ("POST", "/v1/bulk/resume", b'{"where": "true", "reason": "x"}', "application/json", 422, "BadOption"),
        ("GET", "/v1/nothing", b"", "", 404, "RouteNotFound"),
        ("DELETE", "/v1/runs", b"", "", 405, "MethodNotAllowed"),
        ("GET", "/v1/deferreds/nonsense", b"", "", 404, "BadToken"),
    ],
)
async def test_bad_requests_are_problems(
    quick_path: Any, method: str, url: str, raw: bytes, content: str, status: int, error: str
) -> None:
    """Each says its class, what is wrong and what to do; nothing is written."""
    async with served(Environment(str(quick_path / "test.db"))) as call:
        answer = await call(method, url, raw=raw, content_type=content)

        assert (answer.status, answer.json["error"]) == (status, error)
        assert answer.headers["content-type"] == "application/problem+json"
        assert answer.json["request_id"] == answer.headers["x-request-id"]
        assert (await call.get("/v1/runs")).json["items"] == []


async def test_a_body_above_the_limit_is_not_read(quick_path: Any) -> None:
    async with served(Environment(str(quick_path / "test.db"))) as call:
        answer = await call("POST", "/v1/runs", raw=b"", content_length=str(9 * 1024 * 1024))

        assert (answer.status, answer.json["error"]) == (413, "BodyTooLarge")


def test_errors_come_back_as_what_they_were() -> None:
    """A client raises what the server met."""
    for error in (
        RunNotFound("o-17", "main"),
        IdConflict("o-17", "a()", "b()", "it is another workflow", ("replace",)),
        BadFilter("status = ", 9, "something is missing"),
        RunClosed("o-17", "FAILED"),
        RunNotHeld("o-17", "RUNNING"),
        RunOpen("o-17", "RUNNING"),
    ):
        status, problem = problem_of(error, "r-1")
        again = error_of(msgspec.json.decode(msgspec.json.encode(problem)))
        assert (type(again), str(again), again.args) == (type(error), str(error), error.args)
        assert status == status_of(type(error))


def test_no_error_of_input_has_a_status_of_the_servers_own() -> None:
    kinds = [kind for kind in vars(all_errors).values() if isinstance(kind, type) and issubclass(kind, PerdureError)]
    wrong = [kind for kind in kinds if issubclass(kind, all_errors.BadInput) and status_of(kind) >= 500]
    assert wrong == []


async def test_the_document_of_the_routes_names_them_all(quick_path: Any) -> None:
    async with served(Environment(str(quick_path / "test.db"))) as call:
        found = (await call.get("/openapi.json")).json
        page = await call.get("/docs")

        assert found["openapi"] == "3.1.0"
        assert {"/v1/runs", "/v1/runs/{id}", "/v1/runs/{id}/signals"} <= found["paths"].keys()
        assert b"/v1/runs/{id}/signals" in page.body
        assert b"http" not in page.body.replace(b"<!doctype html>", b"")


async def test_a_server_that_stops_answers_who_waits(quick_path: Any) -> None:
    """A long poll is answered, and a stream ends with a word about it."""
    async with Environment(str(quick_path / "test.db")) as env:
        application = cast("Application", env.app.asgi(authenticate=anybody))
        call = Caller(application, host="localhost")
        await call.post("/v1/runs", {"workflow": "http_sleeping", "id": "z"})
        waiting = asyncio.ensure_future(call.get("/v1/runs/z/result?wait=60"))
        frames = asyncio.ensure_future(_all_frames(call, "/v1/runs/z/events"))
        await env.settle()
        application.stop()

        assert (await waiting).status == 202
        assert [frame["event"] for frame in await frames] == ["event", "stop"]
        assert (await call.get("/ready")).status == 503


async def _all_frames(call: Caller, url: str, **headers: str) -> list[dict[str, Any]]:
    return [frame async for frame in call.frames(url, **headers)]


async def test_runs_are_found_and_counted_by_a_filter(env: Environment) -> None:
    async with served(env) as call:
        for n in range(3):
            tier = {"tier": n}
            await call.post("/v1/runs", {"workflow": "http_sleeping", "id": f"w-{n}", "attributes": tier})
        found = await call.get("/v1/runs?where=tier%20%3E%200%20and%20status%20!%3D%20%27failed%27")
        counted = await call.get("/v1/runs/count?where=tier%20%3E%200&by=workflow")

        assert sorted(run["id"] for run in found.json["items"]) == ["w-1", "w-2"]
        assert counted.json == {"count": 2, "by": [{"value": "http_sleeping", "count": 2}]}
        assert (await call.get("/v1/runs?where=tier%20%3E")).json["error"] == "BadFilter"


async def test_runs_are_paused_explained_retried_and_marked(env: Environment) -> None:
    async with served(env) as call:
        await call.post("/v1/runs", {"workflow": "http_failing", "id": "again"})
        await call.get("/v1/runs/again/result?wait=20")
        retried = (await call.post("/v1/runs/again/retry", {"reason": "the bank is back"})).json
        await call.post("/v1/runs", {"workflow": "http_sleeping", "id": "p"})
        assert (await call.post("/v1/runs/p/pause", {"reason": "lunch"})).status == 200
        await env.settle()
        marked = await call("PATCH", "/v1/runs/p/attributes", {"attributes": {"tier": 2}})
        explained = (await call.get("/v1/runs/p/explain")).json

        assert (retried["id"], retried["fork_reason"]) == ("again", "the bank is back")
        assert (marked.json["held"], marked.json["attributes"]) == ("paused", {"tier": 2})
        assert explained["cause"] == "paused"
        assert (await call.post("/v1/runs/p/retry")).json["error"] == "RunOpen"
        assert (await call.post("/v1/runs/p/resume")).json["held"] is None


async def test_namespaces_are_made_and_those_that_are_not_there_refused(env: Environment) -> None:
    async with served(env) as call:
        refused = await call.get("/v1/runs?namespace=blue")
        assert (refused.status, refused.json["error"]) == (404, "NamespaceNotFound")
        assert (await call.post("/v1/namespaces", {"name": "blue"})).status == 201
        assert (await call.get("/v1/runs?namespace=blue")).json["items"] == []
        assert [each["name"] for each in (await call.get("/v1/namespaces")).json["items"]] == ["blue", "main"]
        assert (await call("DELETE", "/v1/namespaces/blue")).json == {"deleted": True}


async def test_numbers_that_no_database_has_room_for_are_refused(quick_path: Any) -> None:
    """In a query and in a body, however deep; not by an error of the database."""
    async with Environment(str(quick_path / "test.db")) as env:
        call = Caller(env.app.asgi(authenticate=anybody))
        await call.post("/v1/runs", {"workflow": "http_sleeping", "id": "z"})
        worker = (await call.post("/v1/workers", {"name": "w", "queues": ["q"], "workflows": {}})).json
        path = f"/v1/workers/{worker['worker_id']}"
        for answer in (
            await call.get(f"/v1/runs/z/events?after={2**63}"),
            await call.get(f"/v1/runs/z/events?before=-{2**70}"),
            await call.post(f"{path}/renew", {"epoch": 2**64}),
            await call.post(f"{path}/advance", {"epoch": 1, "runs": [{"run_id": "z", "after_seq": 10**30}]}),
        ):
            assert (answer.status, answer.json["error"]) == (422, "BadField")


async def test_a_server_that_is_not_ready_says_when_to_ask_again(
    env: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says so to everybody, so not where its database is."""

    async def away(_: str) -> None:
        raise StoreUnavailable("postgresql://ann@db.internal/shop", "db.internal refused the connection")

    async with env:
        api: Any = env.app.asgi()
        call = Caller(api, authorization=f"Bearer {new_key().text}")
        ready = await call.get("/ready")
        monkeypatch.setattr(env.engine.reader, "held_counts", away)
        monkeypatch.setattr(env.engine.access_keys, "check", away)
        blind = await call.get("/ready")
        unknown = await call.get("/v1/runs")
        api.stop()
        stopping = await call.get("/ready")

        assert [each.status for each in (ready, blind, unknown, stopping)] == [200, 503, 503, 503]
        assert {each.headers["retry-after"] for each in (blind, unknown, stopping)} == {"2"}
        assert (stopping.json, unknown.json["error"]) == ({"status": "stopping"}, "StoreUnavailable")
        assert b"internal" not in blind.body + unknown.body


async def test_a_caller_who_leaves_in_the_middle_of_its_request_is_no_trouble(
    quick_path: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """People close pages; a traceback for each would hide what is wrong."""
    async with Environment(str(quick_path / "test.db")) as env:
        messages = [{"type": "http.disconnect"}, {"type": "http.request", "body": b"{", "more_body": True}]
        said = list[Any]()

        async def receive() -> Any:
            return messages.pop()

        async def send(message: Any) -> None:
            said.append(message)

        api = env.app.asgi(authenticate=anybody)
        await api(Caller(api).scope("POST", "/v1/runs", {"content-type": "application/json"}), receive, send)
        assert said == []
        assert [each for each in caplog.records if each.levelname in {"WARNING", "ERROR"}] == []


async def test_an_exact_run_is_named_only_where_a_run_is_meant(env: Environment) -> None:
    """A list that ignored it would show all runs to who wanted one."""
    async with served(env) as call:
        refused = await call.get("/v1/runs?run_id=r-1")
        assert (refused.status, refused.json["error"]) == (422, "BadField")
        assert "run_id" in refused.json["detail"]
