"""Mounted in frameworks and run by servers that are not ours, as the page about HTTP shows it."""

import asyncio
import os
import re
import socket
import sys
from asyncio.subprocess import PIPE, STDOUT
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from starlette.applications import Starlette

from perdure import Perdure, sleep, workflow
from perdure.app.network.server import begin_server
from perdure.app.network.serving import ServerOptions
from perdure.http.access import anybody
from perdure.http.mounting.paths import located
from perdure.http.mounting.proxies import Placed
from perdure.testing import Environment
from tests.server.in_process import Caller
from tests.server.keyed import caller_with, key_for

PAGE = (Path(__file__).parents[2] / "docs" / "http.md").read_text()
PROGRAMS = {
    name: f"# {name}.py\n{code}" for name, code in re.findall(r"```python\n# (\w+)\.py\n(.*?)```", PAGE, re.DOTALL)
}
PATIENCE = 20.0


@workflow
async def mounted_flow() -> None:
    await sleep(3600)


@pytest.fixture
def folder(quick_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(quick_path)
    return quick_path


def program(name: str) -> dict[str, Any]:
    """What a program of the page has made."""
    found: dict[str, Any] = {}
    exec(compile(PROGRAMS[name], f"{name}.py", "exec"), found)
    return found


async def all_of_it(call: Caller, started: str) -> None:
    """An id with a slash, a link, a cookie, a stream: what a prefix may spoil."""
    assert (await call.post("/perdure/v1/runs", {"workflow": started, "id": "o/17"})).status == 201
    assert (await call.get("/perdure/v1/runs/o%2F17")).json["id"] == "o/17"
    assert (await call.get("/perdure/openapi.json")).json["servers"] == [{"url": "/perdure"}]
    assert "Path=/perdure;" in (await call("DELETE", "/perdure/v1/session")).headers["set-cookie"]
    assert (await call.get("/perdure/v1/nothing")).json["error"] == "RouteNotFound"
    async with aclosing(call.raw_frames("/perdure/v1/runs/o%2F17/events")) as frames:
        assert b"RunStarted" in await anext(frames)


async def test_fastapi_mounts_it_with_callers_of_its_own(folder: Path) -> None:
    found = program("in_fastapi")
    async with found["api"].router.lifespan_context(found["api"]):
        await all_of_it(Caller(found["api"], x_user="ann"), "mounted_flow")
        bob, nobody = Caller(found["api"], x_user="bob"), Caller(found["api"])
        assert (await bob.get("/perdure/v1/runs")).status == 200
        refused = await bob.post("/perdure/v1/runs", {"workflow": "mounted_flow"})
        assert (refused.status, refused.json["error"]) == (403, "NotAllowed")
        assert (await nobody.get("/perdure/v1/runs")).status == 401
        assert (await bob.get("/docs")).status == 200
    # The application outlives what it is about.
    gone = await bob.get("/perdure/v1/runs")
    assert (gone.status, gone.json["error"], "shop.db" in gone.body.decode()) == (503, "NotOpen", False)


async def test_starlette_mounts_it_with_keys_of_the_database(quick_path: Path) -> None:
    async with Environment(str(quick_path / "test.db")) as env:
        api = Starlette()
        api.mount("/perdure", env.app.asgi())
        await all_of_it(Caller(api, authorization=f"Bearer {await key_for(env)}"), "mounted_flow")
        assert (await Caller(api).get("/perdure/v1/runs")).status == 401


async def test_litestar_mounts_it_and_opens_it(folder: Path) -> None:
    """It takes the prefix off the path and does not say so."""
    found = program("in_litestar")
    async with found["api"].lifespan():
        key = (await found["app"].keys.create("test", role="admin")).key
        await all_of_it(Caller(found["api"], authorization=f"Bearer {key}"), "mounted_flow")


@asynccontextmanager
async def served(folder: Path, name: str, *words: str) -> AsyncIterator[str]:
    """The address of a program of the page in a server of a process of its own."""
    (folder / f"{name}.py").write_text(PROGRAMS[name])
    (folder / "settings.py").write_text("SECRET_KEY = 'test'\nALLOWED_HOSTS = ['127.0.0.1']\nROOT_URLCONF = 'urls'\n")
    (folder / "urls.py").write_text("urlpatterns = []\n")
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        *words,
        cwd=folder,
        stderr=STDOUT,
        stdout=PIPE,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    try:
        yield await asyncio.wait_for(_address(process), PATIENCE)
    finally:
        process.terminate()
        _, _ = await asyncio.wait_for(process.communicate(), PATIENCE)
    assert process.returncode == 0


async def _address(process: asyncio.subprocess.Process) -> str:
    """Where a server says that it listens, once it does."""
    assert process.stdout is not None
    told = ""
    async for line in process.stdout:
        told += line.decode()
        if re.search("Running on|Started worker", told):
            return await _listening(re.findall(r"127\.0\.0\.1:(\d+)", told)[0])
    raise AssertionError(told)


async def _listening(port: str) -> str:
    while True:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", int(port))
        except ConnectionRefusedError:
            await asyncio.sleep(0.05)
        else:
            writer.close()
            await writer.wait_closed()
            return f"http://127.0.0.1:{port}"


async def test_django_hands_a_path_to_it_under_hypercorn(folder: Path) -> None:
    async with Perdure("sqlite:///shop.db", worker=False) as app:
        key = (await app.keys.create("test", role="reader")).key
        words = ("hypercorn", "--bind", "127.0.0.1:0", "in_django:api")
        async with served(folder, "in_django", *words) as url, aiohttp.ClientSession(url) as http:
            async with http.get("/perdure/v1/runs", headers={"authorization": f"Bearer {key}"}) as runs:
                assert (runs.status, await runs.json()) == (200, {"items": [], "cursor": None})
            async with http.get("/perdure/openapi.json") as document:
                assert (await document.json())["servers"] == [{"url": "/perdure"}]
            for path, status in (("/elsewhere", 404), ("/perdure/v1/runs/o%2F17", 401)):
                async with http.get(path) as answer:
                    assert answer.status == status


async def test_granian_runs_it_by_itself(folder: Path) -> None:
    words = ("granian", "--interface", "asgi", "--host", "127.0.0.1", "--port", str(a_free_port()), "alone:api")
    async with served(folder, "alone", *words) as url, aiohttp.ClientSession(url) as http:
        async with http.get("/ready") as ready:
            assert (ready.status, await ready.json()) == (200, {"status": "ok"})
        async with http.get("/v1/runs/o%2F17") as refused:
            assert (refused.status, (await refused.json())["error"]) == (401, "NotAuthenticated")


def a_free_port() -> int:
    """For a server that does not say which one it was given."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


@pytest.mark.parametrize(
    ("path", "raw", "root", "found"),
    [
        ("/v1/runs", b"/v1/runs", "", ("", "/v1/runs")),
        ("/v1/runs/o/17", b"/v1/runs/o%2F17?x=1", "", ("", "/v1/runs/o%2F17")),
        ("/p/v1/runs/o/17", b"/p/v1/runs/o%2F17", "/p", ("/p", "/v1/runs/o%2F17")),
        # A proxy has taken the prefix off.
        ("/v1/runs/o/17", b"/v1/runs/o%2F17", "/p", ("/p", "/v1/runs/o%2F17")),
        # Another path that begins with the same letters.
        ("/pp/v1", b"/pp/v1", "/p", ("/p", "/pp/v1")),
        # A framework has taken it off and tells nobody.
        ("/v1/runs/o/17/", b"/in/p/v1/runs/o%2F17", "", ("/in/p", "/v1/runs/o%2F17")),
        ("/ä/v1", b"/%C3%A4/v1", "/ä", ("/ä", "/v1")),
        ("/p", b"/p", "/p", ("/p", "")),
        ("/p/v1/runs", None, "/p", ("/p", "/v1/runs")),
        ("/v1/runs/a%b", None, "", ("", "/v1/runs/a%25b")),
    ],
)
def test_the_prefix_is_found_however_it_is_told(
    path: str, raw: bytes | None, root: str, found: tuple[str, str]
) -> None:
    assert located({"path": path, "raw_path": raw, "root_path": root}) == found


async def test_a_server_that_starts_it_opens_and_closes_it(folder: Path) -> None:
    app = Perdure("sqlite:///shop.db", worker=False)
    api = app.asgi()
    heard: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
    said: asyncio.Queue[Any] = asyncio.Queue()
    task = asyncio.ensure_future(api({"type": "lifespan"}, heard.get, said.put))
    assert (await Caller(api).get("/ready")).status == 503
    heard.put_nowait({"type": "lifespan.startup"})
    assert await said.get() == {"type": "lifespan.startup.complete"}
    assert (await Caller(api).get("/ready")).status == 200
    heard.put_nowait({"type": "lifespan.shutdown"})
    assert await said.get() == {"type": "lifespan.shutdown.complete"}
    await task
    assert (await Caller(api).get("/ready")).status == 503


async def test_a_server_leaves_a_perdure_open_that_others_opened(folder: Path) -> None:
    async with Perdure("sqlite:///shop.db", worker=False) as app:
        heard: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        said: asyncio.Queue[Any] = asyncio.Queue()
        for word in ("startup", "shutdown"):
            heard.put_nowait({"type": f"lifespan.{word}"})
        await app.asgi()({"type": "lifespan"}, heard.get, said.put)
        assert [said.get_nowait()["type"] for _ in "12"] == ["lifespan.startup.complete", "lifespan.shutdown.complete"]
        assert await app.count() == 0


async def test_a_perdure_that_was_closed_and_opened_again_is_served_again(folder: Path) -> None:
    """Programs make the application once, and may open what is behind it for each test."""
    app = Perdure("sqlite:///shop.db", worker=False)
    call = Caller(app.asgi(authenticate=anybody))
    for _ in range(2):
        async with app:
            assert (await call.post("/v1/runs", {"workflow": "mounted_flow"})).status == 201
        assert (await call.get("/v1/runs")).status == 503


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (True, "authenticate gave bool; give a perdure.Caller, or None for nobody"),
        (ConnectionError("the directory is away"), "authenticate raised ConnectionError"),
        (KeyError("user"), "authenticate raised KeyError"),
    ],
)
async def test_who_calls_must_be_a_caller(
    quick_path: Path, caplog: pytest.LogCaptureFixture, given: object, told: str
) -> None:
    """Else a function that gives True would let everybody in; the log says once what is wrong."""

    def who(_: object) -> Any:
        if isinstance(given, Exception):
            raise given
        return given

    async with Environment(str(quick_path / "test.db")) as env:
        refused = await Caller(env.app.asgi(authenticate=who)).get("/v1/runs")
        assert (refused.status, refused.headers["content-type"]) == (500, "application/problem+json")
        assert refused.json["detail"] == "the server could not answer this"
        assert (await caller_with(env, "nonsense").get("/v1/runs")).status == 401
    (record,) = [each for each in caplog.records if each.levelname == "ERROR"]
    assert record.getMessage() == f"request broke: {told}"
    # A traceback where there is code of theirs to look at.
    assert bool(record.exc_info) == isinstance(given, Exception)


async def test_a_server_under_a_prefix_is_reached_with_it_and_by_a_proxy_that_takes_it_off(folder: Path) -> None:
    """The address that it prints must work, and so must what most proxies send."""
    async with Perdure("sqlite:///shop.db", worker=False) as app:
        options = ServerOptions(listen="127.0.0.1:0", prefix="/p", behind_proxy=True)
        server, key = await begin_server(app, options)
        try:
            async with aiohttp.ClientSession() as http:
                assert server.url.endswith("/p")
                for url in (server.url, server.url.removesuffix("/p")):
                    async with http.post(f"{url}/v1/session", json={"key": key}) as session:
                        assert session.status == 200
                        assert "Path=/p;" in session.headers["set-cookie"]
                        assert session.headers["set-cookie"].endswith("; Secure")
                        assert session.headers["strict-transport-security"] == "max-age=31536000"
                async with http.get(f"{server.url}p/v1/runs") as other:
                    assert other.status == 404
        finally:
            await server.end(1)


@pytest.mark.parametrize("behind_proxy", [True, False])
async def test_who_calls_is_what_the_proxy_wrote_last(behind_proxy: bool) -> None:
    """What stands before was written by the caller, who could be somebody else with every wrong key."""
    seen: list[Any] = []

    async def look(scope: Any, receive: Any, send: Any) -> None:
        seen.append((scope["client"], scope["scheme"]))

    forged = [(b"x-forwarded-for", b"1.1.1.1"), (b"x-forwarded-for", b"2.2.2.2, 3.3.3.3")]
    scope = {"type": "http", "scheme": "http", "client": ("10.0.0.1", 5), "headers": forged}
    await Placed(look, "", behind_proxy=behind_proxy)(scope, None, None)  # type: ignore[arg-type]
    assert seen == [(("3.3.3.3", 0), "https") if behind_proxy else (("10.0.0.1", 5), "http")]
