"""The processes of the soak: workers, and a client with visitors who come at a steady rate.

A client says every few seconds how many visits have ended, the p99 of starts in milliseconds and how many
visits went wrong. Both stay until their standard input ends.

usage: python -m bench.soaked worker FOLDER
       python -m bench.soaked client FOLDER PER_SECOND SEED
"""

import asyncio
import logging
import sys
import traceback
from pathlib import Path

import msgspec

from bench.database import DATABASE
from bench.visitors import Visitor
from perdure import Perdure

# Quiet runs are parked early, so that parking and waking are part of the load.
PARK_AFTER_SECONDS = 2.0
SAY_SECONDS = 5.0
# Visitors who are there at once; whoever comes when it is full goes away again.
MOST_VISITORS = 500


class Said(msgspec.Struct, frozen=True):
    """What a client says of the last few seconds; counts are since the beginning."""

    visits: int
    wrong: int
    turned_away: int
    start_p99_ms: float


async def work(folder: Path) -> None:
    # Failing attempts are part of the load.
    logging.getLogger("perdure").setLevel(logging.ERROR)
    async with Perdure(f"sqlite:///{folder / DATABASE}", park_after=PARK_AFTER_SECONDS):
        await asyncio.to_thread(sys.stdin.read)


class Door:
    """Lets visitors in, and counts them."""

    def __init__(self, visitor: Visitor) -> None:
        self.visitor = visitor
        self.inside: set[asyncio.Task[None]] = set()
        self.wrong = 0
        self.turned_away = 0

    def open(self) -> None:
        if len(self.inside) >= MOST_VISITORS:
            self.turned_away += 1
            return
        visit = asyncio.create_task(self._visit())
        self.inside.add(visit)
        visit.add_done_callback(self.inside.discard)

    async def _visit(self) -> None:
        try:
            await self.visitor.visit()
        except Exception:  # noqa: BLE001 - one visit that goes wrong is counted and shown; the others go on
            self.wrong += 1
            traceback.print_exc()

    def say(self) -> None:
        taken, self.visitor.start_ms = sorted(self.visitor.start_ms), []
        p99 = taken[int(len(taken) * 0.99)] if taken else 0.0
        said = Said(self.visitor.visits, self.wrong, self.turned_away, p99)
        print(msgspec.json.encode(said).decode(), flush=True)


async def call(folder: Path, per_second: float, seed: int) -> None:
    logging.getLogger("perdure").setLevel(logging.ERROR)
    async with Perdure(f"sqlite:///{folder / DATABASE}", worker=False) as app:
        door, loop = Door(Visitor(app, seed)), asyncio.get_running_loop()
        is_over = loop.run_in_executor(None, sys.stdin.read)
        next_at = next_say_at = loop.time()
        while not is_over.done():
            now = loop.time()
            while next_at <= now:
                door.open()
                next_at += 1 / per_second
            if now >= next_say_at:
                door.say()
                next_say_at = now + SAY_SECONDS
            await asyncio.sleep(min(next_at, next_say_at) - loop.time())
        await asyncio.gather(*door.inside)
        door.say()


if __name__ == "__main__":
    if sys.argv[1] == "worker":
        asyncio.run(work(Path(sys.argv[2])))
    else:
        asyncio.run(call(Path(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4])))
