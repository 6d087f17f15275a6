"""One run of one scenario in a process of its own, so that no run inherits another's memory.

In:   the scenario's name, an empty folder, a size.
Out:  its numbers as JSON on standard output, after every result and every row was checked.

usage: python -m bench.one SCENARIO FOLDER SIZE
"""

import asyncio
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import msgspec

from bench import (
    beats,
    children,
    crew,
    crowd,
    deferreds,
    exposed,
    knocks,
    recovery,
    requests,
    signals,
    sleeps,
    starts,
    steps,
    streams,
    transactions,
    undos,
)
from bench.database import Numbers

Scenario = Callable[[Path, int], Coroutine[Any, Any, Numbers]]


async def _recovery(folder: Path, size: int) -> Numbers:
    # It only watches other processes; there is nothing else on this loop that it could hold up.
    return recovery.measure(folder, size)


SCENARIOS: dict[str, Scenario] = {
    "S1": steps.throughput,
    "S2": steps.latency,
    "S3": steps.long_run,
    "S4": sleeps.measure,
    "S5": signals.measure,
    "S6": children.measure,
    "S7": _recovery,
    "S9": starts.measure,
    "memory": children.memory,
    "deferreds": deferreds.measure,
    "requests": requests.measure,
    "undos": undos.measure,
    "exposed": exposed.measure,
    "streams": streams.measure,
    "beats": beats.measure,
    "transactions": transactions.measure,
    "crew": crew.measure,
    "knocks": knocks.measure,
    "crowd": crowd.measure,
}


if __name__ == "__main__":
    name, folder, size = sys.argv[1:]
    answer = asyncio.run(SCENARIOS[name](Path(folder), int(size)))
    print(msgspec.json.encode(answer).decode())
