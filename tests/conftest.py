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


@pytest.fixture(params=["live", "replay always", "postgres"])
def env(request: pytest.FixtureRequest) -> Environment:
    """A closed environment: on a file, live and in zero-cache mode, and on Postgres; open it with `async with`."""
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
