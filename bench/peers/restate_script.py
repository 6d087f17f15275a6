"""Restate at our scenarios: its server, a service that it calls over HTTP/2, and this client.

It runs with a Python of its own, in which the SDK, granian and aiohttp are installed and Perdure is not, and says
the same numbers as `bench.one`. The server keeps its log in the given folder, with its settings as they come.

usage: restate_script.py SCENARIO SERVER FOLDER SIZE SECONDS      stops to begin new work after so many seconds
"""

import asyncio
import json
import os
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path

import aiohttp
import restate

IN_FLIGHT = 200
WARM_UP = 100
RECEIVERS = 500
PATIENCE_SECONDS = 60.0

Numbers = dict[str, float]
Call = Callable[[str, object], Awaitable[object]]

bench = restate.Service("bench")
listener = restate.Workflow("listener")


async def add_one() -> int:
    return 1


async def wall_clock() -> float:
    return time.time()


@bench.handler()
async def no_step(_ctx: restate.Context, number: int) -> int:
    return number


@bench.handler()
async def many_steps(ctx: restate.Context, steps: int) -> int:
    return sum([await ctx.run_typed("add_one", add_one) for _ in range(steps)])


@bench.handler()
async def one_sleep(ctx: restate.Context, seconds: float) -> float:
    began = await ctx.run_typed("began", wall_clock)
    await ctx.sleep(timedelta(seconds=seconds))
    return float((time.time() - began - seconds) * 1e3)


@bench.handler()
async def fan_out(ctx: restate.Context, children: int) -> int:
    called = [ctx.service_call(many_steps, arg=1) for _ in range(children)]
    return sum([await child for child in called])


@listener.main()
async def listen(ctx: restate.WorkflowContext, count: int) -> list[int]:
    return [await ctx.promise(f"tick{number}", type_hint=int).value() for number in range(count)]


@listener.handler()
async def tick(ctx: restate.WorkflowSharedContext, number: int) -> None:
    await ctx.promise(f"tick{number}", type_hint=int).resolve(number)


app = restate.app([bench, listener])


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


async def throughput(call: Call, size: int, seconds: float) -> Numbers:
    done, taken = await as_many(size, seconds, lambda _: call("bench/many_steps", 5))
    return {"workflows_per_s": done / taken}


async def latency(call: Call, size: int, _seconds: float) -> Numbers:
    taken = []
    for _ in range(size):
        began = time.perf_counter()
        assert await call("bench/many_steps", 1) == 1
        taken.append((time.perf_counter() - began) * 1e3)
    taken.sort()
    return {"p50_ms": statistics.median(taken), "p99_ms": taken[int(len(taken) * 0.99)]}


async def long_run(call: Call, size: int, _seconds: float) -> Numbers:
    began = time.perf_counter()
    assert await call("bench/many_steps", size) == size
    return {"step_ms": (time.perf_counter() - began) / size * 1e3}


async def sleeps(call: Call, size: int, _seconds: float) -> Numbers:
    late = await asyncio.gather(*(call("bench/one_sleep", 1 + number / size) for number in range(size)))
    ordered = sorted(float(str(ms)) for ms in late)
    return {"late_p50_ms": statistics.median(ordered), "late_p99_ms": ordered[int(size * 0.99)]}


async def signals(call: Call, size: int, seconds: float) -> Numbers:
    waiting = [asyncio.create_task(_awaited(call(f"listener/{key}/listen", size))) for key in range(RECEIVERS)]
    # Until all of them are there.
    await asyncio.sleep(4)
    began = time.perf_counter()

    async def one(key: int) -> None:
        for number in range(size):
            await call(f"listener/{key}/tick", number)

    await as_many(RECEIVERS, seconds, one)
    for each in waiting:
        assert await each == list(range(size))
    return {"here_per_s": RECEIVERS * size / (time.perf_counter() - began)}


async def _awaited(answer: Awaitable[object]) -> object:
    return await answer


async def children(call: Call, size: int, _seconds: float) -> Numbers:
    began = time.perf_counter()
    assert await call("bench/fan_out", size) == size
    return {"seconds": time.perf_counter() - began}


async def starts(call: Call, size: int, seconds: float) -> Numbers:
    """Sent, not ended: each answer means that the server has it."""
    done, taken = await as_many(size, seconds, lambda number: call("bench/no_step/send", number))
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


def free_ports(count: int) -> list[int]:
    probes = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [int(probe.getsockname()[1]) for probe in probes]
    for probe in probes:
        probe.close()
    return ports


class Servers:
    """Restate's server and our service, until they are ended."""

    def __init__(self, server: str, folder: Path) -> None:
        self._ingress, self._admin, self._node, self._service = free_ports(4)
        self.ingress = f"http://127.0.0.1:{self._ingress}"
        self.admin = f"http://127.0.0.1:{self._admin}"
        self.service = f"http://127.0.0.1:{self._service}"
        with (folder / "restate.log").open("w") as log:
            self._processes = [
                subprocess.Popen([server, "--no-logo"], env=self._settings(folder), stdout=log, stderr=log, cwd=folder),
                subprocess.Popen(self._granian(), stdout=log, stderr=log, cwd=Path(__file__).parent),
            ]

    def _settings(self, folder: Path) -> dict[str, str]:
        return os.environ | {
            "RESTATE_DISABLE_TELEMETRY": "true",
            "RESTATE_BASE_DIR": str(folder / "restate"),
            "RESTATE_LISTEN_MODE": "tcp",
            "RESTATE_BIND_ADDRESS": f"127.0.0.1:{self._node}",
            "RESTATE_ADVERTISED_ADDRESS": f"http://127.0.0.1:{self._node}/",
            "RESTATE_INGRESS__BIND_ADDRESS": f"127.0.0.1:{self._ingress}",
            "RESTATE_ADMIN__BIND_ADDRESS": f"127.0.0.1:{self._admin}",
            "RESTATE_LOG_FILTER": "error",
        }

    def _granian(self) -> list[str]:
        options = ["--interface", "asgi", "--http", "2", "--host", "127.0.0.1", "--port", str(self._service), "--no-ws"]
        program = str(Path(sys.executable).parent / "granian")
        return [program, *options, "--log-level", "error", "restate_script:app"]

    def end(self) -> None:
        for process in self._processes:
            process.terminate()
        for process in self._processes:
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


async def registered(session: aiohttp.ClientSession, servers: Servers) -> None:
    """The server knows the service, and takes calls."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            body = {"uri": servers.service, "force": True}
            async with session.post(f"{servers.admin}/deployments", json=body) as answer:
                if answer.ok:
                    return
                said = await answer.text()
        except aiohttp.ClientError as error:
            said = str(error)
        assert time.monotonic() < deadline, f"the service cannot be registered: {said}"
        await asyncio.sleep(0.3)


async def main(scenario: str, servers: Servers, size: int, seconds: float) -> None:
    patience = aiohttp.ClientTimeout(total=600)
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), timeout=patience) as session:

        async def call(path: str, argument: object) -> object:
            async with session.post(f"{servers.ingress}/{path}", json=argument) as answer:
                body = await answer.read()
                assert answer.ok, body
                return json.loads(body) if body else None

        await registered(session, servers)
        await as_many(WARM_UP, seconds, lambda _: call("bench/many_steps", 5))
        print(json.dumps(await SCENARIOS[scenario](call, size, seconds)), flush=True)


if __name__ == "__main__":
    name, program, place, how_many, how_long = sys.argv[1:]
    both = Servers(program, Path(place))
    try:
        asyncio.run(main(name, both, int(how_many), float(how_long)))
    finally:
        both.end()
