"""Shared fixtures. `async def` tests run on a loop of their own."""

import asyncio
import inspect
import os
import signal
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from perdure.testing import Environment
from tools import servers


def pytest_sessionstart() -> None:
    """What is run in the background ignores Ctrl-C, and so would the processes that tests start and interrupt."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run `async def` tests."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    wanted = pyfuncitem._fixtureinfo.argnames
    arguments: dict[str, Any] = {name: pyfuncitem.funcargs[name] for name in wanted}
    asyncio.run(pyfuncitem.obj(**arguments))
    return True


@pytest.fixture(params=["live", "replay always", "postgres"])
def env(request: pytest.FixtureRequest, tmp_path: Path) -> Environment:
    """A closed environment: on a file, live and in zero-cache mode, and on Postgres; open it with `async with`."""
    if request.param == "postgres":
        return Environment(request.getfixturevalue("postgres_url"))
    return Environment(str(tmp_path / "test.db"), replay_always=request.param == "replay always")


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


@pytest.fixture
def postgres_url(postgres: str) -> str:
    """The URL of a schema that nobody has used yet."""
    return f"{postgres}?schema=test_{os.getpid()}_{next(_schemas)}"
