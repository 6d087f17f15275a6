"""Shared fixtures. `async def` tests run on a loop of their own."""

import asyncio
import inspect
import signal
from pathlib import Path
from typing import Any

import pytest

from perdure.testing import Environment


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


@pytest.fixture(params=["live", "replay always"])
def env(request: pytest.FixtureRequest, tmp_path: Path) -> Environment:
    """A closed environment on a file, live and in zero-cache mode; open it with `async with`."""
    return Environment(str(tmp_path / "test.db"), replay_always=request.param == "replay always")
