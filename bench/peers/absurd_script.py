"""Absurd at our scenarios: a worker process with several connections, and this client, on one Postgres database.

It runs with a Python of its own, in which its SDK and its `absurdctl` are installed and Perdure is not, and says the
same numbers as `bench.one`. A connection works one statement at a time, so that both sides have several; workers look
for work every 20 ms, more often than how they come.

usage: absurd_script.py SCENARIO URL SIZE SECONDS      stops to begin new work after so many seconds
       absurd_script.py work URL                       the worker process
"""

import asyncio
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from itertools import count
from typing import Any

import psycopg
from absurd_sdk import AsyncAbsurd
from absurdctl import BUNDLED_SCHEMA_SQL

CONNECTIONS, CONCURRENCY, POLL_SECONDS = 8, 10, 0.02
IN_FLIGHT = 50
RECEIVERS = 500
WARM_UP = 30
PATIENCE_SECONDS = 100.0
QUEUES = ("parents", "children")

Numbers = dict[str, float]


async def add_one() -> int:
    return 1


async def wall_clock() -> float:
    return time.time()


def register(absurd: Any, url: str) -> None:
    @absurd.register_task("no_step")
    async def no_step(params: Any, _ctx: Any) -> object:
        return params

    @absurd.register_task("many_steps")
    async def many_steps(params: Any, ctx: Any) -> int:
        return sum([await ctx.step(f"add_one_{number}", add_one) for number in range(params["steps"])])

    @absurd.register_task("one_sleep")
    async def one_sleep(params: Any, ctx: Any) -> float:
        began = await ctx.step("began", wall_clock)
        await ctx.sleep_for("sleep", params["seconds"])
        return float((time.time() - began - params["seconds"]) * 1e3)

    @absurd.register_task("listen")
    async def listen(params: Any, ctx: Any) -> list[object]:
        return [await ctx.await_event(f"tick-{params['key']}-{number}") for number in range(params["count"])]

    @absurd.register_task("fan_out")
    async def fan_out(params: Any, ctx: Any) -> int:
        async def spawn_all() -> list[str]:
            # The worker's own connection is in use, and knows the task by another queue.
            other = AsyncAbsurd(url, queue_name="children")
            spawned = [
                await other.spawn("many_steps", {"steps": 1}, queue="children") for _ in range(params["children"])
            ]
            await other.close()
            return [str(each["task_id"]) for each in spawned]

        ids = await ctx.step("spawn", spawn_all)
        for id in ids:
            await ctx.await_task_result(id, queue_name="children")
        return len(ids)


async def work(url: str) -> None:
    async def one(queue: str) -> None:
        absurd = AsyncAbsurd(url, queue_name=queue)
        register(absurd, url)
        await absurd.start_worker(concurrency=CONCURRENCY, poll_interval=POLL_SECONDS)

    await asyncio.gather(*(one(queue) for queue in QUEUES for _ in range(CONNECTIONS)))


class Client:
    """Several connections that start tasks in turns, and one that looks how they are."""

    def __init__(self, url: str) -> None:
        self._all = [AsyncAbsurd(url, queue_name="parents") for _ in range(CONNECTIONS)]
        self._turn = count()
        self._url = url
        self._looks: Any = None

    async def open(self) -> None:
        self._looks = await psycopg.AsyncConnection.connect(self._url, autocommit=True)
        await self._looks.execute(BUNDLED_SCHEMA_SQL.encode())
        for queue in QUEUES:
            await self._all[0].create_queue(queue)

    async def spawn(self, task: str, params: object) -> str:
        absurd = self._all[next(self._turn) % CONNECTIONS]
        return str((await absurd.spawn(task, params, queue="parents"))["task_id"])

    async def emit(self, event: str, payload: object) -> None:
        await self._all[next(self._turn) % CONNECTIONS].emit_event(event, payload, queue_name="parents")

    async def look(self, query: str) -> list[Any]:
        return list(await (await self._looks.execute(query.encode())).fetchall())

    async def ended(self, tasks: int) -> None:
        """Until so many tasks have been completed."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while (await self.look("select count(*) from absurd.t_parents where state = 'completed'"))[0][0] < tasks:
            assert time.monotonic() < deadline, f"not all of {tasks} tasks have ended"
            await asyncio.sleep(0.02)

    async def waiting(self, tasks: int) -> None:
        """Until so many tasks wait."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while (await self.look("select count(*) from absurd.t_parents where state = 'sleeping'"))[0][0] < tasks:
            assert time.monotonic() < deadline, f"not all of {tasks} tasks wait"
            await asyncio.sleep(0.1)

    async def run(self, task: str, params: object) -> None:
        id = await self.spawn(task, params)
        await self._all[0].await_task_result(id, queue_name="parents")


async def as_many(size: int, seconds: float, one: Callable[[int], Awaitable[object]]) -> tuple[int, float]:
    """How many of so many were done by callers who each wait for their answer, and in how many seconds."""
    numbers, done, began = iter(range(size)), 0, time.perf_counter()

    async def one_after_another() -> None:
        nonlocal done
        for number in numbers:
            await one(number)
            done += 1
            if time.perf_counter() - began > seconds:
                return

    await asyncio.gather(*(one_after_another() for _ in range(IN_FLIGHT)))
    return done, time.perf_counter() - began


async def throughput(client: Client, size: int, seconds: float) -> Numbers:
    began = time.perf_counter()
    done, _ = await as_many(size, seconds, lambda _: client.spawn("many_steps", {"steps": 5}))
    await client.ended(WARM_UP + done)
    return {"workflows_per_s": done / (time.perf_counter() - began)}


async def latency(client: Client, size: int, seconds: float) -> Numbers:
    taken: list[float] = []
    ends_at = time.perf_counter() + seconds
    while len(taken) < size and time.perf_counter() < ends_at:
        began = time.perf_counter()
        await client.run("many_steps", {"steps": 1})
        taken.append((time.perf_counter() - began) * 1e3)
    taken.sort()
    return {"p50_ms": statistics.median(taken), "p99_ms": taken[int(len(taken) * 0.99)]}


async def long_run(client: Client, size: int, _seconds: float) -> Numbers:
    began = time.perf_counter()
    await client.spawn("many_steps", {"steps": size})
    await client.ended(WARM_UP + 1)
    return {"step_ms": (time.perf_counter() - began) / size * 1e3}


async def sleeps(client: Client, size: int, seconds: float) -> Numbers:
    started, _ = await as_many(size, seconds, lambda n: client.spawn("one_sleep", {"seconds": 1 + n / size}))
    await client.ended(WARM_UP + started)
    found = await client.look("select completed_payload::text from absurd.t_parents where task_name = 'one_sleep'")
    late = sorted(float(ms) for (ms,) in found)
    return {"late_p50_ms": statistics.median(late), "late_p99_ms": late[int(len(late) * 0.99)]}


async def signals(client: Client, size: int, seconds: float) -> Numbers:
    await as_many(RECEIVERS, seconds, lambda key: client.spawn("listen", {"key": key, "count": size}))
    await client.waiting(RECEIVERS)
    began = time.perf_counter()

    async def one(key: int) -> None:
        for number in range(size):
            await client.emit(f"tick-{key}-{number}", number)

    await as_many(RECEIVERS, seconds, one)
    await client.ended(WARM_UP + RECEIVERS)
    return {"here_per_s": RECEIVERS * size / (time.perf_counter() - began)}


async def children(client: Client, size: int, _seconds: float) -> Numbers:
    began = time.perf_counter()
    await client.spawn("fan_out", {"children": size})
    await client.ended(WARM_UP + 1)
    return {"seconds": time.perf_counter() - began}


async def starts(client: Client, size: int, seconds: float) -> Numbers:
    """Spawned, not ended: each answer means that the task is on disk."""
    done, taken = await as_many(size, seconds, lambda number: client.spawn("no_step", {"number": number}))
    return {"starts_per_s": done / taken}


SCENARIOS = {
    "S1": throughput,
    "S2": latency,
    "S3": long_run,
    "S4": sleeps,
    "S5": signals,
    "S6": children,
    "S9": starts,
}


async def main(scenario: str, url: str, size: int, seconds: float) -> None:
    client = Client(url)
    await client.open()
    with subprocess.Popen([sys.executable, __file__, "work", url]) as worker:  # noqa: ASYNC220 - before anything is measured
        try:
            await as_many(WARM_UP, seconds, lambda _: client.spawn("many_steps", {"steps": 5}))
            await client.ended(WARM_UP)
            print(json.dumps(await SCENARIOS[scenario](client, size, seconds)), flush=True)
        finally:
            worker.kill()


if __name__ == "__main__":
    if sys.argv[1] == "work":
        asyncio.run(work(sys.argv[2]))
    else:
        asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4])))
