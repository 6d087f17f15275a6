"""The process whose runs wait for signals from another one (S5).

It starts as many runs as it is told to, says when all of them wait, and works until its
standard input ends.

usage: python -m bench.receiver FOLDER RUNS SIGNALS
"""

import asyncio
import sys
from pathlib import Path

from bench.database import opened
from bench.workflows import receive_all


async def main(folder: Path, runs: int, signals: int) -> None:
    async with opened(folder) as app:
        for number in range(runs):
            await app.start(receive_all.options(id=f"receiver-{number}"), signals)
        print(f"waiting {runs}", flush=True)
        await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])))
