"""S3 among many: a long run in tables that are full of runs, half of them ended with a history, half parked.

Out:  milliseconds per step.
"""

import asyncio
import time
from pathlib import Path

from bench.database import Numbers, connected, opened, schema_of, server_of
from bench.steps import ms_per_step
from bench.timers import fill_schema

STEPS = 1000
FAR_AWAY_SECONDS = 24 * 3600
EVENTS = 5
ENDED = """
update runs
   set status = 'COMPLETED',
       outcome = '1',
       wake_at = null,
       waiting = null,
       last_seq = 7,
       closed_at = updated_at
 where seed % 2 = 0
"""
HISTORIES = f"""
insert into events (namespace, run_id, seq, kind, place, at, body)
select namespace, run_id, seq, 'ActivityCompleted', 'add_one', created_at, '1'
  from runs, generate_series(2, {EVENTS + 1}) as seq
 where status = 'COMPLETED'
"""


async def measure(folder: Path, size: int) -> Numbers:
    """So many runs are there before."""
    server = server_of(folder)
    assert server is not None, "it is measured on Postgres only"
    first_at = int((time.time() + FAR_AWAY_SECONDS) * 1000)
    await asyncio.to_thread(fill_schema, folder, size, first_at, 100)
    with connected(server, schema_of(folder)) as db:
        db.execute(ENDED)
        db.execute(HISTORIES)
    async with opened(folder) as app:
        await ms_per_step(app, STEPS // 10)
        return {"step_ms": await ms_per_step(app, min(size, STEPS))}
