"""Several processes on one file, and how they come and go."""

import asyncio
import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TypeVar

import pytest

from perdure import Perdure, Run, Workflow
from tests.processes.sites import Site, recorded_steps, repeated, steps, until
from tests.processes.workflows import (
    collecting,
    gated,
    gathered,
    hurrying,
    plain,
    plodding,
    poke,
    signalled,
    ticking,
    timed,
)

R = TypeVar("R")

NOTES = 5
STEPS_OF_EACH = 500
SECONDS = float(os.environ.get("SHARED_SECONDS") or 600)


class Latencies:
    """How long a client waited for each start, in seconds."""

    def __init__(self) -> None:
        self._waits: list[float] = []

    async def start(self, app: Perdure, kind: Workflow[..., R], key: str, *args: object) -> Run[R]:
        began = time.monotonic()
        run = await app.start(kind.options(id=key), key, *args)
        self._waits.append(time.monotonic() - began)
        return run

    def percentile(self, part: float) -> float:
        return sorted(self._waits)[int(len(self._waits) * part)]


async def share_a_file(site: Site, processes: int, is_enough: Callable[[], bool]) -> tuple[Counter[int], float]:
    """Start runs until it is enough; answers how many steps each worker did, and the p99 of a start in seconds."""
    workers = [await site.worker() for _ in range(processes)]
    expected: dict[str, list[str]] = {}
    latencies = Latencies()
    async with site.client() as app:
        while not is_enough():
            rounds = [one_round(app, latencies, f"{len(expected)}-{number}") for number in range(20)]
            for found in await asyncio.gather(*rounds):
                expected |= found
            await until(lambda: site.open_runs() < 200, "not too many runs at once")
        await until(lambda: site.open_runs() == 0, "all runs end", within=300)
    assert site.outcomes() == {key: ("COMPLETED", result) for key, result in expected.items()}
    effects = site.effects()
    done = Counter(effect.pid for effect in effects)
    p99 = latencies.percentile(0.99)
    print(f"{len(expected)} runs, steps by process: {dict(done)}, p99 of a start {p99 * 1000:.0f} ms")
    assert done.keys() == {worker.pid for worker in workers}
    assert len(effects) == len({(effect.key, effect.number) for effect in effects})
    assert [await worker.leave() for worker in workers] == [0] * processes
    site.check()
    return done, p99


async def one_round(app: Perdure, latencies: Latencies, suffix: str) -> dict[str, list[str]]:
    """A few runs; one of them is sent signals one after the other, whoever owns it."""
    keys = [f"{kind.name}-{suffix}" for kind in (plain, timed, gathered)]
    for kind, key in zip((plain, timed, gathered), keys, strict=True):
        await latencies.start(app, kind, key)
    key = f"collecting-{suffix}"
    run = await latencies.start(app, collecting, key, NOTES)
    for number in range(NOTES):
        await run.signal(poke, str(number))
    return {key: steps(key) for key in keys} | {key: [str(number) for number in range(NOTES)]}


@pytest.mark.parametrize("processes", [2, 4])
async def test_workers_share_a_file(site: Site, processes: int) -> None:
    """Nobody starves, nobody sees a locked database, and signals arrive once and in order whoever owns the run."""

    def is_everybody_at_work() -> bool:
        done = Counter(effect.pid for effect in site.effects())
        return len(done) == processes and min(done.values()) > STEPS_OF_EACH

    await share_a_file(site, processes, is_everybody_at_work)


@pytest.mark.long
@pytest.mark.timeout(2400)
@pytest.mark.parametrize("processes", [2, 4])
async def test_workers_share_a_file_for_long(site: Site, processes: int) -> None:
    """Starvation and lock-ups need time to show."""
    deadline = time.monotonic() + SECONDS
    done, p99 = await share_a_file(site, processes, lambda: time.monotonic() > deadline)
    assert min(done.values()) > done.total() / processes * 0.5
    assert p99 < 0.25


async def test_many_processes_may_open_a_new_file_at_once(site: Site) -> None:
    """The first start of a deployment: several processes find no database and make it."""
    nodes = [site.node() for _ in range(5)]
    for node in nodes:
        await node.prepare()
    for node in nodes:
        node.go()
    for node in nodes:
        await node.hears("ready")
    assert site.value("select count(*) from workers") == 5
    assert [await node.leave() for node in nodes] == [0] * 5
    site.check()


async def start_many(app: Perdure, hurried: int) -> dict[str, list[str]]:
    """Runs in every situation: between steps, in a step, asleep, waiting for a signal, with one unread."""
    expected: dict[str, list[str]] = {}
    waiting: list[Run[list[str]]] = []
    for number in range(10):
        keys = [f"{name}-{number}" for name in ("hurrying", "plodding", "ticking", "gated", "signalled")]
        await app.start(hurrying.options(id=keys[0]), keys[0], hurried)
        await app.start(plodding.options(id=keys[1]), keys[1], 50)
        await app.start(ticking.options(id=keys[2]), keys[2], 0.3)
        waiting.append(await app.start(gated.options(id=keys[3]), keys[3]))
        run = await app.start(signalled.options(id=keys[4]), keys[4])
        waiting.append(run)
        await run.signal(poke, "first")
        expected |= {keys[0]: steps(keys[0], hurried), keys[1]: steps(keys[1], 50)}
        expected |= {keys[2]: steps(keys[2]), keys[3]: steps(keys[3])}
        done = steps(keys[4])
        expected[keys[4]] = [done[0], "first", done[1], "last", *done[2:]]
    return expected


async def send_last(app: Perdure, keys: Sequence[str]) -> None:
    for key in keys:
        if key.startswith(("gated", "signalled")):
            await (await app.get(key)).signal(poke, "last")


@pytest.mark.parametrize("disk", ["quick", "slow"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_worker_that_stops_hands_its_runs_back(site: Site, number: signal.Signals, disk: str) -> None:
    """Every deployment does this: a run between two steps must go on elsewhere, not wait for ever."""
    options = ["--slow-disk"] if disk == "slow" else []
    first = await site.worker(*options)
    async with site.client() as app:
        expected = await start_many(app, 500)
        await until(lambda: len(site.effects()) > 200, "the first worker is at work")

        assert await first.leave(number) == 0

        assert site.rows("select * from workers") == []
        assert [file.name for file in (site.folder / "site.db.locks").iterdir()] == ["write"]
        assert site.value("select count(*) from runs where owner is not null") == 0
        recorded, executed = recorded_steps(site.histories()), len(site.effects())
        second = await site.worker(*options)
        await send_last(app, list(expected))
        await until(lambda: site.open_runs() == 0, "the second worker ends all runs")
    assert site.outcomes() == {key: ("COMPLETED", result) for key, result in expected.items()}
    assert repeated(recorded, site.effects()[executed:]) == []
    assert await second.leave() == 0
    site.check()


@pytest.mark.parametrize("disk", ["quick", "slow"])
async def test_a_crowded_worker_ends_all_runs(site: Site, disk: str) -> None:
    """A worker with little room parks runs early, and must not park one that has a step to do."""
    worker = await site.worker("--max-live", "5", *(["--slow-disk"] if disk == "slow" else []))
    async with site.client() as app:
        expected = await start_many(app, 100)
        await send_last(app, list(expected))
        await until(lambda: site.open_runs() == 0, "all runs end", within=300)
    assert site.outcomes() == {key: ("COMPLETED", result) for key, result in expected.items()}
    assert await worker.leave() == 0
    site.check()
