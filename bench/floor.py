"""The floor: the bare rows of five-step workflows on a SQLite file, with no engine above them.

Out:  workflows per second, and the milliseconds of a bare commit.

A workflow is one row inserted, five event rows, and its row updated: seven transactions
for each hundred workflows, every one synced. The bare commit is one event row in a
transaction of its own. Rows, groups and settings are those every Perdure benchmark is
measured against and must stay as they are, or ratios of different days cannot be compared.

usage: python -m bench.floor [FOLDER]
"""

import json
import sqlite3
import sys
import tempfile
import time
import uuid
from contextlib import closing
from pathlib import Path

import msgspec

WORKFLOWS = 3000
GROUP = 100
STEPS = 5
COMMITS = 500
BODY = json.dumps({"value": 1, "pad": "x" * 40})

TABLES = """
create table runs (
    run_id   text primary key,
    workflow text,
    status   text,
    input    text,
    outcome  text,
    at       double precision
);
create table events (
    id     integer primary key,
    run_id text,
    seq    int,
    kind   text,
    place  text,
    at     double precision,
    body   text,
    unique (run_id, seq)
);
"""
INSERT_RUNS = """
insert into runs (run_id, workflow, status, input, at)
select value ->> 0, 'five', 'RUNNING', value ->> 1, value ->> 2
  from json_each(?)
"""
INSERT_EVENTS = """
insert into events (run_id, seq, kind, place, at, body)
select value ->> 0, value ->> 1, 'ActivityCompleted', 'noop', value ->> 2, value ->> 3
  from json_each(?)
"""
END_RUNS = """
update runs
   set status = 'COMPLETED',
       outcome = ended.outcome
  from (select value ->> 0 as run_id, value ->> 1 as outcome from json_each(?)) as ended
 where runs.run_id = ended.run_id
"""
INSERT_EVENT = "insert into events (run_id, seq, kind, place, at, body) values ('z', ?, 'k', 'p', 0, ?)"


class Floor(msgspec.Struct, frozen=True):
    """What the disk and SQLite alone can do."""

    workflows_per_s: float
    commit_ms: float


def measure(folder: Path) -> Floor:
    """The floor, on a new file in a folder on the disk that counts."""
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        path = Path(scratch) / "floor.db"
        with closing(sqlite3.connect(path, isolation_level=None)) as db:
            db.execute("pragma journal_mode = wal")
            db.execute("pragma synchronous = full")
            db.executescript(TABLES)
            return Floor(WORKFLOWS / _seconds_of_workflows(db), _seconds_of_commits(db) / COMMITS * 1e3)


def _seconds_of_workflows(db: sqlite3.Connection) -> float:
    began = time.perf_counter()
    for _ in range(WORKFLOWS // GROUP):
        _write_group(db, new_ids(), time.time())
    return time.perf_counter() - began


def _write_group(db: sqlite3.Connection, run_ids: list[str], now: float) -> None:
    """A hundred workflows: each kind of row in one statement and one transaction."""
    _commit(db, INSERT_RUNS, json.dumps([(run_id, BODY, now) for run_id in run_ids]))
    for seq in range(STEPS):
        _commit(db, INSERT_EVENTS, json.dumps([(run_id, seq, now, BODY) for run_id in run_ids]))
    _commit(db, END_RUNS, json.dumps([(run_id, BODY) for run_id in run_ids]))


def _seconds_of_commits(db: sqlite3.Connection) -> float:
    began = time.perf_counter()
    for seq in range(COMMITS):
        _commit(db, INSERT_EVENT, seq, BODY)
    return time.perf_counter() - began


def _commit(db: sqlite3.Connection, sql: str, *parameters: object) -> None:
    db.execute("begin immediate")
    db.execute(sql, parameters)
    db.execute("commit")


def new_ids() -> list[str]:
    """Time-ordered ids, as ours are."""
    milliseconds = f"{time.time_ns() // 1_000_000:012x}"
    return [milliseconds + uuid.uuid4().hex[12:] for _ in range(GROUP)]


if __name__ == "__main__":
    found = measure(Path(sys.argv[1] if len(sys.argv) > 1 else "."))
    print(msgspec.json.encode(found).decode())
