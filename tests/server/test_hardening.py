"""Attacks on servers of this kind, as they are known from others: for each the test that it fails here.

The numbers are those of a catalogue of weaknesses of API servers and of advisories about workflow engines.
"""

import ast
import asyncio
import gzip
import re
from contextlib import suppress
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from perdure import Perdure, sleep, workflow
from perdure.access_keys import id_in, new_key
from perdure.app.network.server import begin_server
from perdure.app.network.serving import ServerOptions, checked_address
from perdure.errors import BadOption, NotAllowed
from perdure.http import asgi
from perdure.http.access import ROLES
from perdure.http.callers.authentication import MOST_WRONG
from perdure.http.mounting import connections
from perdure.http.policy import LOOPBACK, MAX_BODY, Policy
from perdure.http.routes import ROUTES
from perdure.http.streaming.streams import MOST_STREAMS
from perdure.http.table import Scope
from perdure.testing import Environment
from tests.server.in_process import Caller
from tests.server.keyed import caller_with, key_for

TESTS = Path(__file__).parents[1]
MATRIX = "server/test_matrix.py::test_nobody_reaches_what_another_tenant_has"
SCOPES = "server/test_access.py::test_every_route_asks_for_its_scope"
HERE = "server/test_hardening.py::"
TABLE: dict[str, list[str]] = {
    "S01 keys that can be guessed": [f"{HERE}test_keys_are_long_and_can_be_told_from_other_texts"],
    "S02 keys in the database": [f"{HERE}test_no_key_is_kept_nor_shown_again"],
    "S03 keys compared byte by byte": [
        "server/test_access.py::test_a_key_with_the_right_id_and_another_secret_is_refused"
    ],
    "S04 keys shown again": [f"{HERE}test_no_key_is_kept_nor_shown_again"],
    "S05 keys that cannot be narrowed or ended": [
        "server/test_access.py::test_a_key_is_made_used_and_revoked",
        "server/test_access.py::test_a_key_ends_when_its_time_is_over",
        "server/test_sessions.py::test_a_revoked_key_ends_its_streams",
    ],
    "S06 a retry after a rotation that is done twice": [
        f"{HERE}test_a_request_sent_again_with_another_key_is_done_once"
    ],
    "S07 forged tokens": [
        "server/test_tokens.py::test_no_forged_token_is_let_in",
        "server/test_tokens.py::test_new_keys_are_asked_for_and_old_ones_outlive_an_outage",
    ],
    "S08 open to all at the first start": [f"{HERE}test_a_server_that_others_reach_wants_tls_and_keys"],
    "S09 key after key": ["server/test_access.py::test_key_after_key_is_answered_with_429"],
    "S10 routes that forget to ask": [SCOPES, "server/test_matrix.py::test_every_route_has_its_row"],
    "S20 rights by role": [MATRIX, SCOPES],
    "S21 the id of another tenant": [MATRIX],
    "S22 many at once with the rights of the engine": [
        "server/test_many.py::test_a_key_of_an_entity_steers_its_own_runs_alone"
    ],
    "S23 children and schedules of others": [
        "server/test_access.py::test_a_key_of_an_entity_finds_no_other_run_by_any_way",
        "server/test_many.py::test_schedules_of_another_entity_are_not_there",
    ],
    "S24 tasks of another worker": [
        "server/test_remote_workers.py::test_what_is_said_twice_counts_once_and_what_is_not_ones_own_is_refused",
        "server/test_remote_workers.py::test_a_key_of_a_queue_is_good_for_workers_of_that_queue_alone",
    ],
    "S25 an oracle for what is there": [f"{HERE}test_what_belongs_to_another_is_missing_in_the_same_words"],
    "S26 fields that nobody may write": ["server/test_runs.py::test_bad_requests_are_problems"],
    "S27 a statement without its namespace": [
        MATRIX,
        "test_namespaces.py::test_ids_queues_and_claims_stay_in_their_namespace",
    ],
    "S28 one cache for two tenants": ["test_namespaces.py::test_ids_queues_and_claims_stay_in_their_namespace"],
    "S36 bodies that unpack to gigabytes": [f"{HERE}test_a_packed_body_is_not_unpacked"],
    "S37 ids that end a header": [f"{HERE}test_no_value_of_a_caller_makes_a_header"],
    "S44 scripts in pages": [f"{HERE}test_every_answer_keeps_browsers_careful"],
    "S45 values that become markup": [f"{HERE}test_every_answer_keeps_browsers_careful"],
    "S46 changes by pages of others": [
        "server/test_sessions.py::test_a_session_stands_for_a_key_at_every_process",
        MATRIX,
        f"{HERE}test_nothing_is_changed_by_a_get",
    ],
    "S47 origins that are only alike": [f"{HERE}test_pages_are_let_in_by_their_exact_origin_alone"],
    "S48 a name that points to this machine": [f"{HERE}test_names_that_are_not_ours_are_not_answered_to"],
    "S49 frames, sniffing, referrers": [f"{HERE}test_every_answer_keeps_browsers_careful"],
    "S60 bodies without an end": [
        f"{HERE}test_a_body_is_cut_at_the_limit_whatever_it_says_of_itself",
        "server/test_runs.py::test_a_body_above_the_limit_is_not_read",
    ],
    "S61 slow senders": [
        f"{HERE}test_who_sends_too_slowly_is_cut",
        f"{HERE}test_a_head_without_an_end_is_cut",
        f"{HERE}test_what_is_sent_on_after_its_refusal_is_cut",
    ],
    "S62 headers that take long to read": [
        "server/test_sessions.py::test_headers_above_the_limit_are_refused",
        f"{HERE}test_every_answer_keeps_browsers_careful",
    ],
    "S63 more than one caller's share": [
        "server/test_sessions.py::test_a_key_has_so_many_streams_and_no_more",
        "server/test_runs.py::test_bad_requests_are_problems",
    ],
    "S64 requests that nobody thought of": ["server/test_fuzzing.py::test_every_answer_is_one_of_the_schema"],
    "S67 secrets in the log": ["server/test_sessions.py::test_the_access_log_has_routes_and_no_values"],
    "S71 routes that nobody knows of": ["server/test_matrix.py::test_every_route_has_its_row"],
    "S72 workers that lie": [
        "server/test_remote_runs.py::test_commands_of_a_run_are_all_done_or_none",
        "server/test_fuzzing.py::test_every_answer_is_one_of_the_schema",
    ],
    "S73 a sandbox that is none": [f"{HERE}test_the_page_says_that_workflow_code_is_trusted"],
    "S74 files that others may read": ["test_sqlite_files.py::test_all_files_are_their_owners_alone"],
}
NUMBERS = [*range(1, 11), *range(20, 29), 36, 37, *range(44, 50), *range(60, 65), 67, *range(71, 75)]


@workflow
async def hard_flow() -> None:
    await sleep(3600)


def test_every_row_names_tests_that_exist() -> None:
    assert [int(name[1:3]) for name in TABLE] == NUMBERS
    named = {test for tests in TABLE.values() for test in tests}
    files = {test.partition("::")[0] for test in named}
    there = {f"{file}::{name}" for file in files for name in _tests_in(TESTS / file)}
    assert sorted(named - there) == []
    assert all(TABLE.values())


def _tests_in(path: Path) -> list[str]:
    tree = ast.parse(path.read_text())
    return [node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]


def test_keys_are_long_and_can_be_told_from_other_texts() -> None:
    keys = [new_key().text for _ in range(1000)]
    assert len(set(keys)) == 1000
    for key in keys:
        found = re.fullmatch(r"pdk_([0-9a-z]+)_([0-9a-f]{64})_([0-9a-f]{8})", key)
        assert found is not None
        assert id_in(key) == found[1]
        assert id_in(key[:-1] + ("0" if key[-1] != "0" else "1")) is None


async def test_no_key_is_kept_nor_shown_again(quick_path: Path) -> None:
    """Neither whole nor its secret part: who reads the database, or the list, cannot call."""
    async with Environment(str(quick_path / "test.db")) as env:
        keys = [await key_for(env, role="admin") for _ in range(20)]
        call = caller_with(env, keys[0])
        shown = (await call.get("/v1/keys")).body.decode()
        await call.post("/v1/session", {"key": keys[0]})
        secrets = [key.split("_")[2] for key in keys]
        disk = b"".join(path.read_bytes() for path in quick_path.glob("test.db*") if path.is_file())
    assert not any(secret in shown or secret.encode() in disk for secret in secrets)


async def test_a_request_sent_again_with_another_key_is_done_once(quick_path: Path) -> None:
    async with Environment(str(quick_path / "test.db")) as env:
        old, new = [caller_with(env, await key_for(env, role="operator")) for _ in range(2)]
        first = await old.post("/v1/runs", {"workflow": "hard_flow"}, idempotency_key="k")
        again = await new.post("/v1/runs", {"workflow": "hard_flow"}, idempotency_key="k")
        assert first.json == again.json
        assert await env.app.count() == 1


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (ServerOptions("0.0.0.0:1"), "--tls-cert"),
        (ServerOptions("[::]:1"), "--behind-proxy"),
        (ServerOptions("shop.example:1"), "--tls-cert"),
        (ServerOptions("0.0.0.0:1", no_auth=True, behind_proxy=True), "--no-auth"),
        (ServerOptions("0.0.0.0:1", tls_cert="c"), "--tls-key"),
    ],
)
def test_a_server_that_others_reach_wants_tls_and_keys(options: ServerOptions, told: str) -> None:
    with pytest.raises(BadOption, match=told):
        checked_address(options)
    for listen in ("127.0.0.1:1", "localhost:1", "[::1]:1", "127.9.9.9:1"):
        checked_address(ServerOptions(listen, no_auth=True))


async def test_what_belongs_to_another_is_missing_in_the_same_words(quick_path: Path) -> None:
    async with Environment(str(quick_path / "test.db")) as env:
        await env.app.start(hard_flow.options(id="theirs", entity_id="npc-1"))
        call = caller_with(env, await key_for(env, role="operator", entity_id="npc-42"))
        answers = [await call.get(f"/v1/runs/{id}") for id in ("theirs", "nobody")]
        words = [re.sub("theirs|nobody", "*", answer.json["detail"]) for answer in answers]
        assert [answer.status for answer in answers] == [404, 404]
        assert words[0] == words[1]
        assert answers[0].json.keys() == answers[1].json.keys()


async def test_a_packed_body_is_not_unpacked(quick_path: Path) -> None:
    async with Environment(str(quick_path / "test.db")) as env:
        packed = gzip.compress(b'{"workflow": "' + b"x" * 10_000_000 + b'"}')
        call = caller_with(env, await key_for(env))
        answer = await call("POST", "/v1/runs", raw=packed, content_encoding="gzip")
        assert (answer.status, answer.json["error"]) == (400, "BadJson")


@pytest.mark.parametrize("text", ["a\r\nset-cookie: x=1", "a\nx: y", "a\r", "a\x00b"])
async def test_no_value_of_a_caller_makes_a_header(quick_path: Path, text: str) -> None:
    async with Environment(str(quick_path / "test.db")) as env:
        call = caller_with(env, await key_for(env))
        body = {"workflow": "hard_flow", "id": text}
        for answer in (
            await call.post("/v1/runs", body),
            await call.post("/v1/runs", body | {"id": "a"}, idempotency_key=text),
            await call.get("/v1/runs/nobody", origin=text, if_none_match=text),
        ):
            assert answer.status < 500
            assert not any(re.search(r"[\r\n\0]", name + value) for name, value in answer.headers.items())


async def test_every_answer_keeps_browsers_careful(quick_path: Path) -> None:
    """Pages hold nothing of users and no scripts; all else is JSON that no browser takes for a page."""
    async with Environment(str(quick_path / "test.db")) as env:
        call = caller_with(env, await key_for(env))
        for route in ROUTES:
            if route.method == "GET":
                path = re.sub(r"\{\w+\}", "<script>alert(1)</script>".replace("/", "%2F"), route.path)
                answer = await call.get(path, range="bytes=" + ",".join(f"{n}-{n}" for n in range(3000)))
                assert answer.headers["x-content-type-options"] == "nosniff", path
                assert answer.headers["referrer-policy"] == "no-referrer", path
                policy = answer.headers["content-security-policy"]
                assert "default-src 'none'" in policy
                assert "frame-ancestors 'none'" in policy
                assert "unsafe" not in policy
                is_page = route.path == "/docs"
                assert answer.headers["content-type"].startswith("text/html" if is_page else "application/"), path
                assert not is_page or b"<script" not in answer.body
                assert answer.status != 206


async def test_nothing_is_changed_by_a_get() -> None:
    """Who only reads has the right to every GET but those of admins and workers, who look as well."""
    assert {route.scope for route in ROUTES if route.method == "GET"} <= {
        Scope.OPEN,
        Scope.READ,
        Scope.WORK,
        Scope.ADMIN,
    }
    assert not [route.path for route in ROUTES if route.method == "GET" and route.body is not None]


ALIKE = [
    "https://app.example.evil.example",
    "http://app.example",
    "https://evil-app.example",
    "https://app.example:8443",
    "https://APP.example.",
    "null",
    "*",
    "",
    "http://evil-localhost:7373",
    "http://localhost:7373.evil.example",
    "http://localhost",
]


@pytest.mark.parametrize("origin", ALIKE)
async def test_pages_are_let_in_by_their_exact_origin_alone(origin: str) -> None:
    policy = Policy(origins=frozenset({"https://app.example"}), checks_origin=True)
    names = {name for name, _ in policy.headers_for({"origin": origin})}
    assert not {name for name in names if name.startswith(b"access-control")}
    with pytest.raises(NotAllowed):
        policy.check({"origin": origin, "host": "localhost:7373"})
    right = dict(policy.headers_for({"origin": "https://app.example"}))
    assert right[b"access-control-allow-origin"] == b"https://app.example"
    assert b"access-control-allow-credentials" not in right


HOSTS = [
    "evil.example",
    "localhost.evil.example",
    "127.0.0.1.evil.example",
    "evil.example:7373",
    "",
    "localhost@evil",
    "0",
]


@pytest.mark.parametrize("host", HOSTS)
def test_names_that_are_not_ours_are_not_answered_to(host: str) -> None:
    policy = Policy(hosts=LOOPBACK | {"shop.example"})
    with pytest.raises(NotAllowed):
        policy.check({"host": host})
    for name in ("localhost:7373", "127.0.0.1", "[::1]:80", "shop.example:443", "LocalHost", "Shop.Example:7373"):
        policy.check({"host": name})


async def test_names_and_origins_are_known_however_they_are_written(quick_path: Path) -> None:
    """Browsers write both in small letters, an origin without a slash, and a port where it is not the usual one."""
    options = ServerOptions(
        listen="127.0.0.1:0", allow_hosts=("Shop.Example:7373",), allow_origins=("https://App.Example/",)
    )
    async with Perdure(f"sqlite:///{quick_path / 'test.db'}", worker=False) as app:
        server, _ = await begin_server(app, options)
        try:
            async with aiohttp.ClientSession() as http:
                headers = {"host": "shop.example", "origin": "https://app.example"}
                async with http.get(f"{server.url}/health", headers=headers) as answer:
                    assert answer.status == 200
                    assert answer.headers["access-control-allow-origin"] == "https://app.example"
                async with http.options(f"{server.url}/v1/runs", headers={"host": "evil.example"}) as answer:
                    assert answer.status == 403
        finally:
            await server.end(1)


@pytest.mark.parametrize("origin", ["app.example", "*", "https://app.example/page", "https://", "null"])
def test_an_origin_that_no_browser_sends_is_refused_at_the_start(origin: str) -> None:
    with pytest.raises(BadOption, match="--allow-origin"):
        checked_address(ServerOptions(allow_origins=(origin,)))


@pytest.mark.parametrize("kind", ["application/json", "multipart/form-data", "application/x-www-form-urlencoded"])
async def test_a_body_is_cut_at_the_limit_whatever_it_says_of_itself(quick_path: Path, kind: str) -> None:
    async with Environment(str(quick_path / "test.db")) as env:
        sent, said = 0, list[Any]()

        async def receive() -> Any:
            nonlocal sent
            sent += 1
            return {"type": "http.request", "body": b" " * 1_000_000, "more_body": True}

        async def send(message: Any) -> None:
            said.append(message)

        key = await key_for(env)
        call = Caller(env.app.asgi())
        headers = {"authorization": f"Bearer {key}", "content-type": kind, "content-length": "10"}
        await env.app.asgi()(call.scope("POST", "/v1/runs", headers), receive, send)
        assert said[0]["status"] == 413
        assert sent == 9


async def test_who_sends_too_slowly_is_cut(quick_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asgi, "BODY_SECONDS", 0.01)
    async with Environment(str(quick_path / "test.db")) as env:
        key, said = await key_for(env), list[Any]()

        async def send(message: Any) -> None:
            said.append(message)

        scope = Caller(env.app.asgi()).scope("POST", "/v1/runs", {"authorization": f"Bearer {key}"})
        await env.app.asgi()(scope, asyncio.Event().wait, send)  # type: ignore[arg-type]
        assert said[0]["status"] == 422


async def test_a_head_without_an_end_is_cut(quick_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also the second one of a connection, and one that never begins; one that grows is cut at once."""
    monkeypatch.setattr(connections, "HEAD_SECONDS", 0.1)
    whole = b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n"
    async with Perdure(f"sqlite:///{quick_path / 'test.db'}", worker=False) as app:
        server, _ = await begin_server(app, ServerOptions(listen="127.0.0.1:0"))
        try:
            for beginning in (
                b"",
                b"GET /hea",
                whole + b"GET /health HTTP/1.1\r\nx: y\r\n",
                b"GET / HTTP/1.1\r\nx: " + b"y" * 70_000,
            ):
                reader, writer = await asyncio.open_connection("127.0.0.1", int(server.url.rpartition(":")[2]))
                writer.write(beginning)
                heard = b""
                try:
                    while data := await asyncio.wait_for(reader.read(65536), 60):
                        heard += data
                except ConnectionError:
                    pass
                assert (b" 200 " in heard) == beginning.startswith(whole)
                writer.close()
        finally:
            await server.end(1)


async def test_what_is_sent_on_after_its_refusal_is_cut(quick_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else one refusal would be the beginning of an upload without an end."""
    monkeypatch.setattr(connections, "HEAD_SECONDS", 0.2)
    head = b"POST /v1/runs HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    async with Perdure(f"sqlite:///{quick_path / 'test.db'}", worker=False) as app:
        server, key = await begin_server(app, ServerOptions(listen="127.0.0.1:0"))
        try:
            for known, status in ((f"authorization: Bearer {key}\r\n".encode(), b" 413 "), (b"", b" 401 ")):
                reader, writer = await asyncio.open_connection("127.0.0.1", int(server.url.rpartition(":")[2]))
                writer.write(head + known + b"content-length: 1000000000\r\n\r\n")
                assert status in await asyncio.wait_for(reader.readuntil(b"\r\n"), 60)
                sending = asyncio.ensure_future(send_on(writer))
                with suppress(ConnectionError):
                    await asyncio.wait_for(reader.read(), 60)
                sending.cancel()
                writer.close()
        finally:
            await server.end(1)


async def send_on(writer: asyncio.StreamWriter) -> None:
    """A little now and then, so that the connection is never idle."""
    while True:
        writer.write(b" ")
        await asyncio.sleep(0.02)


PAGE = (TESTS.parent / "docs" / "security.md").read_text()


def test_the_page_says_that_workflow_code_is_trusted() -> None:
    assert "Workflow code is trusted" in PAGE


async def test_the_program_of_the_page_makes_narrow_keys(quick_path: Path) -> None:
    (program,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    found: dict[str, Any] = {}
    exec(compile(program, "security.md", "exec"), found)
    async with Environment(str(quick_path / "test.db")) as env:
        assert await found["keys"](env.app) == ["gpu workers", "npc 42"]


def test_the_page_names_options_roles_limits_and_pages_that_exist() -> None:
    options = {option.replace("-", "_") for option in re.findall(r"`--([a-z-]+)", PAGE)}
    assert options <= {name.removesuffix("s") for name in ServerOptions.__struct_fields__}
    roles = dict(re.findall(r"^\| `(\w+)` \| `?([a-z ]+)`? \|", PAGE, re.MULTILINE))
    assert {role: set(scopes.split()) for role, scopes in roles.items() if scopes != "all"} == {
        role: {str(scope) for scope in scopes} for role, scopes in ROLES.items() if role != "admin"
    }
    assert f"{MOST_STREAMS}" in PAGE
    assert (MAX_BODY, asgi.LARGEST_HEADERS, asgi.BODY_SECONDS) == (8 * 2**20, 32 * 2**10, 30)
    assert (MOST_WRONG, connections.HEAD_SECONDS) == (10, 10)
    for target in re.findall(r"\]\((\w[\w/-]*\.md)", PAGE):
        assert (TESTS.parent / "docs" / target).is_file()
