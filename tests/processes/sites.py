"""A site: one database file, the worker processes on it, and everything they leave behind.

In:   a folder.
Out:  nodes to start, kill, freeze and stop; rows and files as they are on disk.
Reads the database with plain `sqlite3`, never through the engine under test.
"""

import asyncio
import fcntl
import json
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

from perdure import Perdure
from tests.processes.workflows import EFFECTS

ROOT = Path(__file__).parents[2]

# What must never stand in a node's log: each of these is a fault of the engine, whatever the test was about.
TROUBLES = (
    "ERROR",
    "CRITICAL",
    "Traceback",
    "Task was destroyed",
    "never retrieved",
    "never awaited",
    "Exception ignored",
    "Warning:",
    "database is locked",
)


class Effect(NamedTuple):
    """A step that some process executed."""

    pid: int
    key: str
    number: int


class Recorded(NamedTuple):
    """An event as its row has it."""

    seq: int
    kind: str
    place: str
    body: str


class Node:
    """A worker process."""

    def __init__(self, site: "Site", *options: str) -> None:
        self.log = site.folder / f"node-{len(site.nodes)}.log"
        self.said: list[str] = []
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-W", "default", "-m", "tests.processes.node", site.url, *options],
                cwd=ROOT,
                env=os.environ | {EFFECTS: str(site.effects_path)},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
            )
        self.pid = self._process.pid
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.said.append(line.decode().rstrip("\n"))

    def heard(self, word: str) -> list[str]:
        """What it said that begins with this word, without it."""
        return [line.removeprefix(word).strip() for line in list(self.said) if line.split(" ")[0] == word]

    def is_running(self) -> bool:
        return self._process.poll() is None

    async def hears(self, word: str) -> list[str]:
        """Wait until it says this word."""
        await until(lambda: self.heard(word) or not self.is_running(), f"node {self.pid} says {word!r}")
        assert self.heard(word), f"node {self.pid} ended:\n{self.log.read_text()}"
        return self.heard(word)

    async def prepare(self) -> "Node":
        """Let it import everything; it waits then."""
        await self.hears("imported")
        return self

    def go(self) -> None:
        """Let it open the database."""
        assert self._process.stdin is not None
        self._process.stdin.write(b"go\n")
        self._process.stdin.flush()

    async def begin(self) -> "Node":
        """Let it work."""
        await self.prepare()
        self.go()
        await self.hears("ready")
        return self

    def send(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def kill(self) -> None:
        """kill -9, and wait until nothing of it is left."""
        self._process.kill()
        self._process.wait()
        self._listener.join(timeout=1)

    async def leave(self, number: signal.Signals = signal.SIGTERM, within: float = 20.0) -> int:
        """Ask it to stop; its exit code."""
        self.send(number)
        await until(lambda: not self.is_running(), f"node {self.pid} leaves", within)
        return self._process.wait()

    def end(self) -> None:
        """Nothing of it stays behind, whatever the test did to it."""
        if self.is_running():
            self.kill()
        self._listener.join(timeout=1)
        for child in self.heard("child"):
            _kill_child(int(child))
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()

    def troubles(self) -> list[str]:
        """Lines of its log that should not be there."""
        lines = self.log.read_text(errors="replace").splitlines()
        return [line for line in lines if any(trouble in line for trouble in TROUBLES)]


class Site:
    """A folder with a database, its nodes and what they did."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / "site.db"
        self.url = f"sqlite:///{self.path}"
        self.effects_path = folder / "effects"
        self.effects_path.touch()
        self.nodes: list[Node] = []

    def node(self, *options: str) -> Node:
        """A new worker process; it waits to be told to begin."""
        node = Node(self, *options)
        self.nodes.append(node)
        return node

    async def worker(self, *options: str) -> Node:
        """A new worker process at work."""
        return await self.node(*options).begin()

    def client(self) -> Perdure:
        """An engine in the test's own process that only asks."""
        return Perdure(self.url, worker=False)

    def end(self) -> None:
        for node in self.nodes:
            node.end()

    # What is on disk

    def rows(self, sql: str, *parameters: object) -> list[Any]:
        """What a plain connection reads."""
        with closing(sqlite3.connect(f"file:{self.path}?mode=ro", uri=True)) as db:
            return db.execute(sql, parameters).fetchall()

    def value(self, sql: str, *parameters: object) -> Any:
        return self.rows(sql, *parameters)[0][0]

    def open_runs(self) -> int:
        return int(self.value("select count(*) from runs where closed_at is null"))

    def owned_by(self, node: Node) -> int:
        """How many open runs this process owns."""
        sql = "select count(*) from runs join workers on owner = worker_id where closed_at is null and pid = ?"
        return int(self.value(sql, node.pid))

    def histories(self) -> dict[str, list[Recorded]]:
        """The events of every run, by its run_id, in the order of their numbers."""
        found: dict[str, list[Recorded]] = {run_id: [] for (run_id,) in self.rows("select run_id from runs")}
        for run_id, *event in self.rows("select run_id, seq, kind, place, body from events order by run_id, seq"):
            found[run_id].append(Recorded(*event))
        return found

    def outcomes(self) -> dict[str, Any]:
        """Status and result of every run that has no parent, by the caller's key; of a row of them the last one's."""
        sql = """
            select workflow_id, status, coalesce(outcome, body)
              from runs
              left join payloads on payloads.run_id = runs.run_id and seq = last_seq
             where parent_id is null and is_latest"""
        found = self.rows(sql)
        return {key: (status, json.loads(outcome) if outcome else None) for key, status, outcome in found}

    def effects(self) -> list[Effect]:
        """Every step executed so far, in order."""
        # The last line may be half written by a process that runs.
        lines = [line.split(" ") for line in self.effects_path.read_text().split("\n")[:-1]]
        return [Effect(int(pid), key, int(number)) for pid, key, number in lines]

    async def is_write_stuck(self) -> bool:
        """Whether some process holds the lock under which all write, for longer than a write takes."""
        for _ in range(10):
            if not self.is_write_locked():
                return False
            await asyncio.sleep(0.02)
        return True

    def is_write_locked(self) -> bool:
        """Whether some process holds the lock under which all write."""
        with (self.folder / "site.db.locks" / "write").open("rb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
        return False

    # What must always hold

    def check(self) -> None:
        """The file is whole, every history is gapless and has one outcome per step, and no node complained."""
        assert self.value("pragma integrity_check") == "ok"
        last_seqs = dict(self.rows("select run_id, last_seq from runs"))
        for key, history in self.histories().items():
            numbers = [event.seq for event in history]
            assert numbers == list(range(2, len(numbers) + 2)), key
            assert last_seqs[key] in {None, len(numbers) + 2}, key
            assert [
                place for place, count in Counter(event.place for event in history if event.place).items() if count > 1
            ] == [], key
        troubles = [node.log.read_text(errors="replace") for node in self.nodes if node.troubles()]
        assert troubles == [], "\n".join(troubles)


def recorded_steps(histories: dict[str, list[Recorded]]) -> set[tuple[str, int]]:
    """Key and number of every step whose outcome is in a history."""
    results = [
        json.loads(event.body)["result"]
        for history in histories.values()
        for event in history
        if event.kind == "ActivityCompleted"
    ]
    return {(key, int(number)) for key, _, number in (result.rpartition(":") for result in results)}


def repeated(recorded: set[tuple[str, int]], effects: list[Effect]) -> list[Effect]:
    """Steps that were executed although their outcome was on disk before."""
    return [effect for effect in effects if (effect.key, effect.number) in recorded]


def steps(key: str, count: int = 5) -> list[str]:
    """What a workflow of so many steps returns."""
    return [f"{key}:{number}" for number in range(count)]


async def until(condition: Callable[[], object], what: str, within: float = 30.0) -> float:
    """Wait for a condition, looking often; answers how long it took."""
    began = time.monotonic()
    while not condition():
        assert time.monotonic() - began < within, f"not within {within:g} s: {what}"
        await asyncio.sleep(0.01)
    return time.monotonic() - began


def _kill_child(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def at_work(folder: Path) -> Iterator[Site]:
    """A site that is cleared away afterwards."""
    site = Site(folder)
    try:
        yield site
    finally:
        site.end()
