"""S4: two thousand runs, each of which sleeps for one to two seconds.

Out:  how late the results were, from the call that starts a run on, beyond what it slept;
      and how many sleeps were too short, by the caller's clock or by the times on disk.
"""

import asyncio
import json
import random
import statistics
import time
from pathlib import Path

from bench.database import Numbers, check_rows, opened, rows
from bench.workflows import one_sleep

ON_DISK = """
select events.kind, events.at, events.body, runs.input, runs.created_at, runs.closed_at
  from events
  join runs using (run_id)
"""


async def measure(folder: Path, size: int) -> Numbers:
    """All of them at once."""
    chance = random.Random(size)
    async with opened(folder) as app:

        async def late_ms(seconds: float) -> float:
            began = time.perf_counter()
            assert await app.run(one_sleep, seconds) == seconds
            return (time.perf_counter() - began - seconds) * 1e3

        # To the microsecond, as finely as a timedelta can say it.
        durations = [round(chance.uniform(1, 2), 6) for _ in range(size)]
        late = sorted(await asyncio.gather(*map(late_ms, durations)))
    check_rows(folder, size, size)
    early_by_clock = sum(ms < 0 for ms in late)
    early_on_disk = sum(_is_early(*row) for row in rows(folder, ON_DISK))
    return {
        "late_p50_ms": statistics.median(late),
        "late_p99_ms": late[int(size * 0.99)],
        "late_most_ms": late[-1],
        "late_least_ms": late[0],
        "early_by_clock": float(early_by_clock),
        "early_on_disk": float(early_on_disk),
        "early": float(early_by_clock + early_on_disk),
    }


def _is_early(kind: str, at: int, body: str, input: str, created_at: int, closed_at: int) -> bool:
    """A run's only event is its timer's: not before the time it was set for, which is not before the sleep is over."""
    fire_at = json.loads(body)["fire_at"]
    seconds = json.loads(input)["seconds"]
    return kind != "TimerFired" or at < fire_at or fire_at < created_at + 1000 * seconds or closed_at < at
