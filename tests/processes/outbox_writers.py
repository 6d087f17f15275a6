"""Many writers at once, and a sink that is told of every run they start: none is lost, and none was never there.

python -m tests.processes.outbox_writers URL NUMBER COUNT      one writer, as a process of its own
"""

import asyncio
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from perdure import OutboxEvent, Perdure, sink, workflow
from perdure.authoring.sinks import sinks

# Nobody works this queue: it is about their starts alone.
UNWORKED, WORKED = "outbox-unworked", "outbox-worked"
BITE = 50


@workflow
async def outbox_written(text: str) -> str:
    return text


def ids_of(number: int, count: int) -> list[str]:
    """The runs of a writer."""
    return [f"w{number}-{each}" for each in range(count)]


@asynccontextmanager
async def counting(url: str) -> AsyncIterator[tuple[Perdure, Counter[str]]]:
    """A worker whose sink counts how often it is told of each run."""
    told: Counter[str] = Counter()

    async def counts(event: OutboxEvent) -> None:
        told[str(event.workflow_id)] += 1

    # It is known as long as somebody has it.
    counted = sink(name="counted", events=("run.started",), max_backlog=10**9)(counts)
    try:
        async with Perdure(url, queues=(WORKED,)) as app:
            yield app, told
    finally:
        sinks._known.pop(counted.name, None)


async def until_told(app: Perdure) -> None:
    """Until nothing waits for the sink any more."""
    while (await app.outbox.get("counted")).backlog:  # noqa: ASYNC110 - on the real clock
        await asyncio.sleep(0.05)


async def write(url: str, number: int, count: int) -> None:
    """Start the runs of one writer, some at once."""
    ids = ids_of(number, count)
    async with Perdure(url, worker=False) as app:
        for first in range(0, count, BITE):
            started = (
                app.start(outbox_written.options(id=id, queue=UNWORKED), "x") for id in ids[first : first + BITE]
            )
            await asyncio.gather(*started)


if __name__ == "__main__":
    asyncio.run(write(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
