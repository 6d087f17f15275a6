"""A ground: one database, the worker processes on it, and everything they leave behind.

In:   a folder for logs and effects, the URL of a database, and how its rows are read.
Out:  nodes to start, kill, freeze and stop; rows as they are in the database.
Whoever reads them uses a plain connection, never the engine under test.
"""

import json
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from perdure import Perdure
from tests.processes.nodes import Node, until
from tests.processes.workflows import EFFECTS


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


class Ground(ABC):
    """A database, its nodes and what they did."""

    # How a query names the values of a list that is given as JSON.
    each_value: ClassVar[str]

    def __init__(self, folder: Path, url: str) -> None:
        self.folder = folder
        self.url = url
        self.effects_path = folder / "effects"
        self.effects_path.touch()
        self.nodes: list[Node] = []

    def node(self, *options: str) -> Node:
        """A new worker process; it waits to be told to begin."""
        return self.node_at(self.url, *options)

    def node_at(self, url: str, *options: str) -> Node:
        """The same, which is told another URL of the database."""
        log = self.folder / f"node-{len(self.nodes)}.log"
        node = Node(log, {EFFECTS: str(self.effects_path)}, url, *options)
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

    @abstractmethod
    def rows(self, sql: str, *parameters: object) -> list[Any]:
        """What a plain connection reads; `?` stands for a parameter."""

    @abstractmethod
    def stream(self, sql: str) -> Iterable[tuple[Any, ...]]:
        """The same, one row after the other."""

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
        sql = f"""
            select run_id, seq, kind, place, body
              from {self.each_value}
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

    async def until_all_ended(self, within: float = 300.0) -> None:
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
        for (run_id, last_seq), rows in groupby(self.stream(sql), key=lambda row: row[:2]):
            events = [(seq, place) for _, _, seq, place in rows if seq is not None]
            yield run_id, last_seq, [seq for seq, _ in events], [place for _, place in events if place]

    # What must always hold

    @abstractmethod
    def check_database(self) -> None:
        """The database finds nothing wrong with itself."""

    def check(self) -> None:
        """The database is whole, every history is gapless, and no node complained."""
        self.check_database()
        for run_id, last_seq, seqs, places in self._shapes():
            assert seqs == list(range(2, len(seqs) + 2)), run_id
            assert last_seq in {None, len(seqs) + 2}, run_id
            assert [place for place, count in Counter(places).items() if count > 1] == [], run_id
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
