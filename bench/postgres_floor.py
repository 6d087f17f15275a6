"""The floor on Postgres: the same rows as on SQLite, in the same groups, on one connection.

usage: python -m bench.postgres_floor FOLDER       a folder with the address of a server
"""

import asyncio
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import asyncpg
import msgspec

from bench.database import server_of
from bench.floor import BODY, COMMITS, GROUP, STEPS, WORKFLOWS, Floor, new_ids

if TYPE_CHECKING:
    Connection: TypeAlias = asyncpg.Connection[asyncpg.Record]

TABLES = """
drop schema if exists bench_floor cascade;
create schema bench_floor;
create table bench_floor.runs (
    run_id   text primary key,
    workflow text,
    status   text,
    input    text,
    outcome  text,
    at       double precision
);
create table bench_floor.events (
    id     bigint generated always as identity primary key,
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
insert into bench_floor.runs (run_id, workflow, status, input, at)
select run_id, 'five', 'RUNNING', $3, at
  from unnest($1::text[], $2::float8[]) as new (run_id, at)
"""
INSERT_EVENTS = """
insert into bench_floor.events (run_id, seq, kind, place, at, body)
select run_id, $2, 'ActivityCompleted', 'noop', at, $4
  from unnest($1::text[], $3::float8[]) as new (run_id, at)
"""
END_RUNS = """
update bench_floor.runs
   set status = 'COMPLETED',
       outcome = $2
 where run_id = any($1::text[])
"""
INSERT_EVENT = """
insert into bench_floor.events (run_id, seq, kind, place, at, body)
values ('z', $1, 'k', 'p', 0, $2)
"""


async def measure(server: str) -> Floor:
    """The floor, in a schema of its own that is gone afterwards."""
    db = await asyncpg.connect(server)
    try:
        await db.execute(TABLES)
        return Floor(WORKFLOWS / await _seconds_of_workflows(db), await _seconds_of_commits(db) / COMMITS * 1e3)
    finally:
        await db.execute("drop schema if exists bench_floor cascade")
        await db.close()


async def _seconds_of_workflows(db: "Connection") -> float:
    began = time.perf_counter()
    for _ in range(WORKFLOWS // GROUP):
        await _write_group(db, new_ids(), [time.time()] * GROUP)
    return time.perf_counter() - began


async def _write_group(db: "Connection", run_ids: list[str], now: list[float]) -> None:
    """A hundred workflows: each kind of row in one statement, which is a transaction of its own."""
    await db.execute(INSERT_RUNS, run_ids, now, BODY)
    for seq in range(STEPS):
        await db.execute(INSERT_EVENTS, run_ids, seq, now, BODY)
    await db.execute(END_RUNS, run_ids, BODY)


async def _seconds_of_commits(db: "Connection") -> float:
    began = time.perf_counter()
    for seq in range(COMMITS):
        await db.execute(INSERT_EVENT, seq, BODY)
    return time.perf_counter() - began


if __name__ == "__main__":
    server = server_of(Path(sys.argv[1]))
    assert server is not None, "there is no address of a server in this folder"
    print(msgspec.json.encode(asyncio.run(measure(server))).decode())
