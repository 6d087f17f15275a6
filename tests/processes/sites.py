"""A site: one database file, the worker processes on it, and everything they leave behind.

In:   a folder.
Out:  nodes to start, kill, freeze and stop; rows and files as they are on disk.
Reads the database with plain `sqlite3`, never through the engine under test.
"""

import asyncio
import fcntl
import json
import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

from perdure import Perdure
from perdure.stores.locks import holder_of
from perdure.stores.sqlite_audit import audit_of
from tests.processes.nodes import Node, until
from tests.processes.workflows import EFFECTS

__all__ = ["Effect", "Node", "Recorded", "Site", "at_work", "recorded_steps", "repeated", "steps", "until"]


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


class Site:
    """A folder with a database, its nodes and what they did; the database may have a disk of its own."""

    def __init__(self, folder: Path, disk: Path | None = None) -> None:
        self.folder = folder
        self.path = (disk or folder) / "site.db"
        self.url = f"sqlite:///{self.path}"
        self.effects_path = folder / "effects"
        self.effects_path.touch()
        self.nodes: list[Node] = []

    def node(self, *options: str) -> Node:
        """A new worker process; it waits to be told to begin."""
        log = self.folder / f"node-{len(self.nodes)}.log"
        node = Node(log, {EFFECTS: str(self.effects_path)}, self.url, *options)
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

    def busy_runs(self) -> int:
        """How many runs any worker may have at once: those that wait, and suspects, which take turns, left out."""
        sql = "select count(*) from runs where closed_at is null and status != 'SUSPENDED' and losses < 2"
        return int(self.value(sql))

    def owned_by(self, node: Node) -> int:
        """How many open runs this process owns."""
        sql = "select count(*) from runs join workers on owner = worker_id where closed_at is null and pid = ?"
        return int(self.value(sql, node.pid))

    def histories(self, run_ids: list[str] | None = None) -> dict[str, list[Recorded]]:
        """The events of every run, or of these, by its run_id, in the order of their numbers."""
        wanted = [run_id for (run_id,) in self.rows("select run_id from runs")] if run_ids is None else run_ids
        found: dict[str, list[Recorded]] = {run_id: [] for run_id in wanted}
        sql = """
            select run_id, seq, kind, place, body
              from json_each(?)
              join events on run_id = value
             order by run_id, seq"""
        for run_id, *event in self.rows(sql, json.dumps(wanted)):
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
        return self.effects_after(0)[0]

    def effects_after(self, start: int) -> tuple[list[Effect], int]:
        """Every step executed beyond this byte of the file, and where to look next."""
        with self.effects_path.open("rb") as file:
            file.seek(start)
            # The last line may be half written by a process that runs.
            read = file.read().rpartition(b"\n")[0]
        lines = [line.split(" ") for line in read.decode().splitlines()]
        effects = [Effect(int(pid), key, int(number)) for pid, key, number in lines]
        return effects, start + len(read) + bool(read)

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

    async def until_all_ended(self, within: float = 60.0) -> None:
        """Until no run is open; else those that are, and what became of them, are told."""
        try:
            await until(lambda: self.open_runs() == 0, "all runs end", within)
        except AssertionError:
            sql = "select workflow_id, status, owner, wake_at, waiting, losses, held, held_report from runs"
            for row in self.rows(f"{sql} where closed_at is null limit 20"):
                print(*row)
            raise

    def _shapes(self) -> Iterator[tuple[str, int | None, list[int], list[str]]]:
        """Of every run the number of its end, those of its events, and their places; one after the other, as a long
        test leaves millions of them."""
        sql = """
            select runs.run_id, last_seq, seq, place
              from runs
              left join events using (run_id)
             order by runs.run_id, seq"""
        with closing(sqlite3.connect(f"file:{self.path}?mode=ro", uri=True)) as db:
            for (run_id, last_seq), rows in groupby(db.execute(sql), key=lambda row: row[:2]):
                events = [(seq, place) for _, _, seq, place in rows if seq is not None]
                yield run_id, last_seq, [seq for seq, _ in events], [place for _, place in events if place]

    # What must always hold

    def check(self) -> None:
        """The file is whole, every history is gapless, the audit finds nothing, and no node complained."""
        assert self.value("pragma integrity_check") == "ok"
        for run_id, last_seq, seqs, places in self._shapes():
            assert seqs == list(range(2, len(seqs) + 2)), run_id
            assert last_seq in {None, len(seqs) + 2}, run_id
            assert [place for place, count in Counter(places).items() if count > 1] == [], run_id
        assert audit_of(self.path).violations == ()
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


def at_work(folder: Path) -> Iterator[Site]:
    """A site that is cleared away afterwards."""
    site = Site(folder)
    try:
        yield site
    finally:
        site.end()
