"""A site: one database file, the worker processes on it, and everything they leave behind.

In:   a folder.
Out:  a ground whose rows, locks and files are those on disk.
Reads the database with plain `sqlite3`, never through the engine under test.
"""

import asyncio
import fcntl
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from perdure.stores.sqlite.checks.audit import audit_of
from perdure.stores.sqlite.locks import holder_of
from tests.processes.grounds import Effect, Ground, Recorded, recorded_steps, repeated, steps
from tests.processes.nodes import Node, until

__all__ = ["Effect", "Node", "Recorded", "Site", "at_work", "recorded_steps", "repeated", "steps", "until"]


class Site(Ground):
    """A folder with a database, its nodes and what they did; the database may have a disk of its own."""

    each_value = "json_each(?)"

    def __init__(self, folder: Path, disk: Path | None = None) -> None:
        self.path = (disk or folder) / "site.db"
        super().__init__(folder, f"sqlite:///{self.path}")

    def rows(self, sql: str, *parameters: object) -> list[Any]:
        with closing(sqlite3.connect(f"file:{self.path}?mode=ro", uri=True)) as db:
            return db.execute(sql, parameters).fetchall()

    def stream(self, sql: str) -> Iterator[tuple[Any, ...]]:
        with closing(sqlite3.connect(f"file:{self.path}?mode=ro", uri=True)) as db:
            yield from db.execute(sql)

    def check_database(self) -> None:
        """The file is whole, and the audit finds nothing."""
        assert self.value("pragma integrity_check") == "ok"
        assert audit_of(self.path).violations == ()

    async def is_write_stuck_in(self, node: Node) -> bool:
        """Whether this process, which is being stopped, keeps the lock under which all write."""
        for _ in range(10):
            holder = holder_of(self.path.with_name("site.db.locks") / "write")
            if holder is None or holder.pid != node.pid:
                return False
            await asyncio.sleep(0.02)
        return True

    def is_write_locked(self) -> bool:
        """Whether some process holds the lock under which all write."""
        with (self.path.with_name("site.db.locks") / "write").open("rb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
        return False


def at_work(folder: Path) -> Iterator[Site]:
    """A site that is cleared away afterwards."""
    site = Site(folder)
    try:
        yield site
    finally:
        site.end()
