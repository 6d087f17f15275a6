"""The Postgres server that is measured: one of our own as Postgres comes, or one that is there already.

Out:  its address, its version, and how long anybody had to wait for a lock on it.
"""

import re
import signal
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.database import connected
from tools import servers

# What Postgres has when nobody sets it; and every wait for a lock that takes longer than this is logged.
NOTED_MS = 5
SETTINGS = {
    "shared_buffers": "128MB",
    "max_wal_size": "1GB",
    "deadlock_timeout": f"{NOTED_MS}ms",
    "log_lock_waits": "on",
}
WAITED = re.compile(r"process \d+ acquired (.*) after ([\d.]+) ms(?:\n.*STATEMENT:(.*))?")


class LockWaits:
    """Reads in the server's log how long locks were waited for since it was last asked."""

    def __init__(self, log: Path | None) -> None:
        self._log = log
        self._read = 0
        # Of the longest wait: for which lock, and by which statement.
        self.what = ""

    def longest_ms(self) -> float | None:
        """The longest wait; 0 when all were shorter than what is noted, None when nobody can tell."""
        if self._log is None:
            return None
        with self._log.open(encoding="utf-8", errors="replace") as file:
            file.seek(self._read)
            text = file.read()
            self._read = file.tell()
        ms, *what = max(((float(ms), lock, by) for lock, ms, by in WAITED.findall(text)), default=(0.0, "", ""))
        self.what = ": ".join(word.strip() for word in what if word)
        return ms


@contextmanager
def serving(store: str) -> Iterator[tuple[str | None, LockWaits]]:
    """The address of the server, if there is one: `sqlite` has none, `postgres` is one of our own."""
    if store != "postgres":
        yield None if store == "sqlite" else store, LockWaits(None)
        return
    # Whoever is told to end takes the server with it, and does not leave it behind.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    server = servers.Server(servers.folder(), None, **SETTINGS)
    try:
        server.make().start()
        yield server.url, LockWaits(server.log)
    finally:
        server.end()


def version_of(server: str | None) -> str:
    """What is measured: SQLite where there is no server."""
    if server is None:
        return f"SQLite {sqlite3.sqlite_version}"
    with connected(server) as db:
        ((version,),) = db.execute("show server_version").fetchall()
        return f"Postgres {version}"
