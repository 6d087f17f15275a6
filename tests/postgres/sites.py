"""A schema on a server of its own, and the worker processes on it.

In:   a folder, a server.
Out:  a ground whose rows are those of the schema.
Reads the database with `psycopg`, which the engine under test does not use.
"""

import asyncio
import os
import random
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from typing import Any

import psycopg

from perdure.stores.postgres.checks.audit import audit_of
from tests.processes.grounds import Ground
from tests.processes.nodes import Node, until
from tools.servers import Server

PATIENCE_SECONDS = 120.0

_sites = count()


class PostgresSite(Ground):
    """A server that may be killed, its nodes and what they did."""

    each_value = "json_array_elements_text(?::json) as each (value)"

    def __init__(self, folder: Path, server: Server) -> None:
        self.server = server
        self._schema = f"site_{next(_sites)}"
        super().__init__(folder, f"{server.url}?schema={self._schema}")
        self._db: psycopg.Connection[Any] | None = None
        self._is_down = False

    async def crash(self, pause: float) -> None:
        """The server is gone as if its machine had lost its power, and comes back after a while."""
        self._is_down = True
        await asyncio.to_thread(self.server.stop, "immediate")
        await asyncio.sleep(pause)
        await asyncio.to_thread(self.server.start)
        self._is_down = False

    async def fail_over(self, standby: Server) -> None:
        """The server is gone for ever, as if its machine had burnt, and one that followed it takes its place."""
        self._is_down = True
        await asyncio.to_thread(self.server.stop, "immediate")
        await asyncio.to_thread(standby.promote)
        self.server = standby
        self._let_go()
        self._is_down = False

    def busy_runs(self) -> int:
        """As everywhere; nobody knows while the server is down, and clients go on asking it for more."""
        return 0 if self._is_down else super().busy_runs()

    def open_runs(self) -> int:
        return 0 if self._is_down else super().open_runs()

    def url_by(self, port: int) -> str:
        """The URL by which nodes and clients reach the server through this port."""
        return self.url.replace(f":{self.server.port}/", f":{port}/")

    def end(self) -> None:
        super().end()
        self._let_go()

    def rows(self, sql: str, *parameters: object) -> list[Any]:
        """What a plain connection reads, as soon as there is one to be had."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                return self._connection().execute(sql.replace("?", "%s").encode(), parameters or None).fetchall()
            except psycopg.OperationalError:
                self._let_go()
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.02)

    def stream(self, sql: str) -> Iterator[tuple[Any, ...]]:
        yield from self.rows(sql)

    def _connection(self) -> "psycopg.Connection[Any]":
        if self._db is None:
            options = f"-c search_path={self._schema} -c enable_seqscan=off"
            self._db = psycopg.connect(
                self.server.url, autocommit=True, options=options, application_name="witness", connect_timeout=60
            )
        return self._db

    def _let_go(self) -> None:
        if self._db is not None:
            self._db.close()
            self._db = None

    def worker_ids(self, node: Node) -> list[str]:
        """Under which ids this process is registered."""
        return [worker_id for (worker_id,) in self.rows("select worker_id from workers where pid = ?", node.pid)]

    async def until_more(self, steps: int) -> None:
        """Until so many more steps have been executed, by whomever."""
        before = len(self.effects())
        await until(lambda: len(self.effects()) >= before + steps, f"{steps} more steps are executed")

    def backends(self) -> list[tuple[int, str]]:
        """The server's processes that serve the engine, and for what."""
        return self.rows("select pid, application_name from pg_stat_activity where application_name like 'perdure %'")

    def check_database(self) -> None:
        """The audit finds nothing."""
        # On a loop of its own: whoever asks is on another one, and the proxy that nodes go by may be closed.
        with ThreadPoolExecutor(1) as thread:
            audit = thread.submit(asyncio.run, audit_of(f"{self.server.url}?schema={self._schema}")).result()
        assert audit.violations == ()


def chance() -> random.Random:
    """What is done at random can be done again: SEED=... in the environment."""
    seed = int(os.environ.get("SEED") or random.SystemRandom().getrandbits(32))
    print(f"seed {seed}")
    return random.Random(seed)
