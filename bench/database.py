"""The database that is measured: opened as anybody would open it, and looked into afterwards.

A scenario has a folder. Its database is a file there; or, where the folder holds the address of a Postgres server,
a schema on that server.
"""

import hashlib
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from pathlib import Path
from typing import Any, TypeAlias

import psycopg

from perdure import Perdure

DATABASE = "bench.db"
# The file with the address of the server.
SERVER = "server"
FULL = 2
# As many runs live at once by default.
MAX_LIVE = 10_000

Numbers = dict[str, float]
Look: TypeAlias = Callable[[str], list[Any]]


def settle(folder: Path, server: str | None) -> None:
    """From now on the database of this folder lies on this server, if there is one."""
    if server is not None:
        (folder / SERVER).write_text(server)


def server_of(folder: Path) -> str | None:
    """The address of the server on which the database of this folder lies."""
    path = folder / SERVER
    return path.read_text() if path.exists() else None


def schema_of(folder: Path) -> str:
    return f"bench_{hashlib.sha256(str(folder.absolute()).encode()).hexdigest()[:16]}"


def url_of(folder: Path, *, notify: bool = True) -> str:
    server = server_of(folder)
    if server is None:
        return f"sqlite:///{folder / DATABASE}"
    return f"{server}?schema={schema_of(folder)}{'' if notify else '&notify=off'}"


@asynccontextmanager
async def opened(
    folder: Path, *, worker: bool = True, max_live: int = MAX_LIVE, notify: bool = True
) -> AsyncIterator[Perdure]:
    """Default settings, unless others are given, on the database of this folder."""
    async with Perdure(url_of(folder, notify=notify), worker=worker, max_live=max_live) as app:
        _check_sync(folder, app)
        yield app


def within(folder: Path, name: str) -> Path:
    """A new folder in this one, for a scenario that needs several databases."""
    inner = folder / name
    inner.mkdir()
    settle(inner, server_of(folder))
    return inner


def _check_sync(folder: Path, app: Perdure) -> None:
    """Nobody has turned off what makes a commit durable."""
    if server_of(folder) is None:
        store: Any = app._store
        assert store.transactions.db.execute("pragma synchronous").fetchone() == (FULL,)
        assert store.transactions.db.execute("pragma journal_mode").fetchone() == ("wal",)
        return
    with looking(folder) as look:
        assert look("show fsync") == [("on",)]
        assert look("show synchronous_commit") == [("on",)]


def check_rows(folder: Path, runs: int, events: int, status: str = "COMPLETED") -> None:
    """Everything is on disk: so many runs, all with this status, so many events, a sound file."""
    found = rows(folder, "select status, count(*) from runs group by status")
    assert found == [(status, runs)], f"{runs} runs that are {status} expected, there are {found}"
    assert rows(folder, "select count(*) from events") == [(events,)]
    if server_of(folder) is None:
        assert rows(folder, "pragma integrity_check") == [("ok",)]


def rows(folder: Path, query: str) -> list[Any]:
    """What a query finds in the database of this folder."""
    with looking(folder) as look:
        return look(query)


@contextmanager
def looking(folder: Path) -> Iterator[Look]:
    """For several queries, each of which sees what is there at its moment."""
    server = server_of(folder)
    if server is None:
        with closing(sqlite3.connect(folder / DATABASE)) as file:
            yield lambda query: file.execute(query).fetchall()
        return
    with connected(server, schema_of(folder)) as db:
        yield lambda query: db.execute(query.encode()).fetchall()


@contextmanager
def connected(server: str, schema: str = "public") -> "Iterator[psycopg.Connection[tuple[Any, ...]]]":
    """A connection to a server, in whose statements this schema need not be named."""
    with psycopg.connect(server, autocommit=True, options=f"-c search_path={schema}") as db:
        yield db


def forget(folder: Path) -> None:
    """Leave nothing of this folder's databases, and of those within it, on the server."""
    for path in folder.rglob(SERVER):
        with connected(path.read_text()) as db:
            db.execute(f"drop schema if exists {schema_of(path.parent)} cascade".encode())
