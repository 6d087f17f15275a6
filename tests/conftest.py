"""Shared fixtures. `async def` tests run on a loop of their own."""

import asyncio
import gc
import inspect
import os
import shutil
import signal
from collections.abc import Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

import psycopg
import pytest

from perdure.stores.dialects import TABLES
from perdure.stores.postgres import scan_floor
from perdure.stores.queries import migrations
from perdure.testing import Environment
from tests.server.http_environment import HttpEnvironment
from tools import servers


def pytest_sessionstart() -> None:
    """What is run in the background ignores Ctrl-C, and so would the processes that tests start and interrupt."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Two at least, since many tests wait; no more than four, since containers tell of cores they do not have."""
    return min(4, max(2, os.cpu_count() or 1))


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run `async def` tests."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    wanted = pyfuncitem._fixtureinfo.argnames
    arguments: dict[str, Any] = {name: pyfuncitem.funcargs[name] for name in wanted}
    asyncio.run(pyfuncitem.obj(**arguments))
    return True


def pytest_collection_finish() -> None:
    """Let no garbage collection look through the thousands of tests, which live as long as this process."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def _no_floors(monkeypatch: pytest.MonkeyPatch) -> None:
    """Times are made up here, and on a busy machine every look is slow: neither tells where the next is to begin."""
    monkeypatch.setattr(scan_floor, "SLOW_SECONDS", 3600.0)


@pytest.fixture
def quick_path() -> Iterator[Path]:
    """A new folder, in memory where there is room: for whoever commits much and never cuts the power."""
    path = servers.folder(in_memory=True)
    yield path
    shutil.rmtree(path)


# The tests of these are run by a worker over a server as well; `make behaviour-http` runs more.
OVER_HTTP = {f"test_{name}.py" for name in ("basics", "activities", "children", "deferreds", "undo")}
MORE = "heartbeats interrupted parking pausing queries requests stopping streams tasks"
MORE_OVER_HTTP = {f"test_{name}.py" for name in MORE.split()}
# What these see is not there over a server, or is told in other words.
NOT_OVER_HTTP = {
    "test_an_app_that_closes_tells_its_callers": "the server goes on, and who asks asks another one",
    "test_a_thread_waits_until_what_it_published_is_on_disk": "it holds up the store of the very process",
    "test_a_signal_noticed_before_its_run_lives_is_not_lost": "it holds up a read of the very process",
    "test_a_run_that_has_ended_its_code_is_closed_when_it_goes_on": "it ends before the pause is heard of",
    "test_the_runs_of_a_worker_that_is_gone_are_paused_at_once": "it is gone when its lease is over",
    "test_activities_on_a_queue_that_have_not_begun_wait_with_it": "it waits for one of two environments",
    "test_a_queue_that_nobody_works_is_told_once": "that is told where the server runs",
}


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what is not run over a server."""
    wanted = OVER_HTTP | MORE_OVER_HTTP if "PERDURE_TEST_HTTP" in os.environ else OVER_HTTP
    out = [item for item in items if _is_over_http(item) and not _is_wanted(item, wanted)]
    if out:
        left = {id(item) for item in out}
        items[:] = [item for item in items if id(item) not in left]
        config.hook.pytest_deselected(items=out)


def _is_over_http(item: pytest.Item) -> bool:
    call = getattr(item, "callspec", None)
    return call is not None and call.params.get("env") == "http"


def _is_wanted(item: pytest.Item, wanted: set[str]) -> bool:
    return item.path.name in wanted and getattr(item, "originalname", "") not in NOT_OVER_HTTP


@pytest.fixture(params=["live", "replay always", "postgres", "http"])
def env(request: pytest.FixtureRequest) -> Environment:
    """A closed environment: on a file, live and in zero-cache mode, on Postgres, and over a server.

    Open it with `async with`.
    """
    if request.param == "http":
        return HttpEnvironment(str(request.getfixturevalue("quick_path") / "test.db"))
    if request.param == "postgres":
        return Environment(request.getfixturevalue("empty_url"))
    path = request.getfixturevalue("quick_path")
    return Environment(str(path / "test.db"), replay_always=request.param == "replay always")


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """The URL of a Postgres server: one of our own, or the one that PERDURE_TEST_POSTGRES names."""
    if url := os.environ.get(servers.ENVIRONMENT):
        yield url
        return
    # A crash of the server loses nothing that is in memory, as it loses nothing that is on a disk; only power could.
    server = servers.Server(servers.folder(in_memory=True)).make().start()
    try:
        yield server.url
    finally:
        server.end()


_schemas = count()
# Those that tests have used and that were emptied again: to make all tables takes longer than most tests.
_emptied: list[str] = []


@pytest.fixture
def postgres_url(postgres: str) -> str:
    """The URL of a schema that nobody has used yet."""
    return f"{postgres}?schema=test_{os.getpid()}_{next(_schemas)}"


@pytest.fixture
def empty_url(postgres: str) -> Iterator[str]:
    """The URL of a schema without a row; its tables may be there already."""
    schema = _emptied.pop() if _emptied else f"test_{os.getpid()}_{next(_schemas)}"
    yield f"{postgres}?schema={schema}"
    if _is_emptied(postgres, schema):
        _emptied.append(schema)


def _is_emptied(server: str, schema: str) -> bool:
    """Whether the schema is as new again; not if somebody still uses it, or has left another one."""
    tables = ", ".join(f"{schema}.{table}" for table in TABLES if table != "perdure_schema")
    with psycopg.connect(server) as db, suppress(psycopg.errors.LockNotAvailable, psycopg.errors.UndefinedTable):
        db.execute("set local lock_timeout = '1s'")
        db.execute(f"truncate {tables} restart identity".encode())
        db.execute(f"insert into {schema}.namespaces (namespace, created_at) values ('main', 0)".encode())
        (version,) = db.execute(f"select max(version) from {schema}.perdure_schema".encode()).fetchone() or (None,)
        return bool(version == len(migrations("postgres")))
    return False
