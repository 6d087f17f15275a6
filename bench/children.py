"""S6: one parent with 500 children of one step each, in one gather; and what ten thousand cost in memory.

Memory is the highest so far, as the system counts it, less what was needed before. Beside it
stands the same number of tasks that wait in plain asyncio, in a process of their own.

usage: python -m bench.children TASKS      says how many MB so many waiting tasks need
"""

import asyncio
import resource
import sys
import time
from pathlib import Path

from bench import processes
from bench.database import Numbers, check_rows, opened
from bench.workflows import fan_out
from perdure import Perdure

WARM_UP = 10
# Linux has it; elsewhere getrusage counts in bytes.
STATUS = Path("/proc/self/status")


async def measure(folder: Path, size: int) -> Numbers:
    """From start to result."""
    async with opened(folder) as app:
        seconds = await _seconds(app, size)
    # The steps of the children, and their ends in the parent's history.
    check_rows(folder, size + 1, size * 2)
    return {"seconds": seconds}


async def memory(folder: Path, size: int) -> Numbers:
    """The peak of a large one, after a small one has brought in the code."""
    async with opened(folder) as app:
        await _seconds(app, WARM_UP)
        before = _peak_mb()
        seconds = await _seconds(app, size)
        peak = _peak_mb() - before
    check_rows(folder, WARM_UP + size + 2, (WARM_UP + size) * 2)
    with processes.begun("bench.children", size) as plain:
        return {"peak_mb": peak, "plain_mb": processes.said(plain, "needed"), "seconds": seconds}


async def _seconds(app: Perdure, children: int) -> float:
    began = time.perf_counter()
    assert await app.run(fan_out, children) == children * (children + 1) // 2
    return time.perf_counter() - began


async def plain_mb(tasks: int) -> float:
    """What so many tasks need that wait in one gather."""
    gate = asyncio.Event()

    async def one(number: int) -> int:
        await gate.wait()
        return number

    before = _peak_mb()
    everything = asyncio.gather(*(one(number) for number in range(tasks)))
    await asyncio.sleep(0)
    needed = _peak_mb() - before
    gate.set()
    assert sum(await everything) == tasks * (tasks - 1) // 2
    return needed


def _peak_mb() -> float:
    """The most memory this process has had so far."""
    if not STATUS.exists():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    # Not from getrusage: a process inherits that peak from the one that started it.
    (line,) = (line for line in STATUS.read_text().splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) / 1024


if __name__ == "__main__":
    print(f"needed {asyncio.run(plain_mb(int(sys.argv[1]))):.1f}")
