"""The database that is measured: opened as anybody would open it, and looked into afterwards."""

import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

from perdure import Perdure
from perdure.stores.sqlite import SqliteStore

DATABASE = "bench.db"
FULL = 2
# As many runs live at once by default.
MAX_LIVE = 10_000

Numbers = dict[str, float]


@asynccontextmanager
async def opened(folder: Path, *, worker: bool = True, max_live: int = MAX_LIVE) -> AsyncIterator[Perdure]:
    """Default settings, unless others are given, on a file in this folder."""
    async with Perdure(f"sqlite:///{folder / DATABASE}", worker=worker, max_live=max_live) as app:
        _check_sync(app)
        yield app


def within(folder: Path, name: str) -> Path:
    """A new folder in this one, for a scenario that needs several databases."""
    inner = folder / name
    inner.mkdir()
    return inner


def _check_sync(app: Perdure) -> None:
    """Nobody has turned off what makes a commit durable."""
    store = app._store
    assert isinstance(store, SqliteStore)
    assert store._db.execute("pragma synchronous").fetchone() == (FULL,)
    assert store._db.execute("pragma journal_mode").fetchone() == ("wal",)


def check_rows(folder: Path, runs: int, events: int, status: str = "COMPLETED") -> None:
    """Everything is on disk: so many runs, all with this status, so many events, a sound file."""
    found = rows(folder, "select status, count(*) from runs group by status")
    assert found == [(status, runs)], f"{runs} runs that are {status} expected, there are {found}"
    assert rows(folder, "select count(*) from events") == [(events,)]
    assert rows(folder, "pragma integrity_check") == [("ok",)]


def rows(folder: Path, query: str) -> list[Any]:
    """What a query finds in the database of this folder."""
    with closing(sqlite3.connect(folder / DATABASE)) as db:
        return db.execute(query).fetchall()
