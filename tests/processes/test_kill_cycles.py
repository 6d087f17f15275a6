"""kill -9 again and again under load, checked against a log that another process wrote.

The test's own process is the client: it starts runs and sends signals, and writes each
acknowledgement into the oracle log before it goes on. Only worker processes are killed.
"""

import asyncio
import json
import os
import random
from collections import Counter
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from perdure import Perdure, Run, Workflow
from tests.processes.sites import Node, Recorded, Site, recorded_steps, repeated, steps, until
from tests.processes.workflows import (
    cancelled,
    family,
    gathered,
    generations,
    plain,
    poke,
    signalled,
    timed,
)

KINDS: list[Workflow[..., Any]] = [plain, timed, gathered, signalled, signalled, family, generations, cancelled]
IN_FLIGHT = 100
SIGNALS = 2


class Oracle:
    """The append-only log of what was acknowledged; written before the client goes on, synced at each kill."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT)
        self._path = path

    def write(self, kind: str, key: str, detail: str = "") -> None:
        os.write(self._file, (json.dumps([kind, key, detail]) + "\n").encode())

    def read(self, kind: str) -> list[tuple[str, str]]:
        lines = [json.loads(line) for line in self._path.read_text().splitlines()]
        return [(key, detail) for found, key, detail in lines if found == kind]

    def close(self) -> None:
        os.close(self._file)


class Client:
    """Keeps enough runs in flight, and sends each signalled run its signals at random moments."""

    def __init__(self, app: Perdure, site: Site, oracle: Oracle, chance: random.Random) -> None:
        self._app = app
        self._site = site
        self._oracle = oracle
        self._chance = chance
        self._numbers = count()
        self._to_signal: list[tuple[Run[Any], int]] = []
        self.is_closing = False

    async def feed(self) -> None:
        """Until closing; never cancelled, since then it would not be known what was acknowledged."""
        while not self.is_closing:
            if self._site.open_runs() < 2 * IN_FLIGHT:
                await asyncio.gather(*(self._start() for _ in range(20)))
            for _ in range(max(0, len(self._to_signal) - IN_FLIGHT)):
                await self._signal_one()
            await asyncio.sleep(0.005)

    async def finish(self) -> None:
        """Send what is still to be sent."""
        while self._to_signal:
            await self._signal_one()

    async def _start(self) -> None:
        kind = self._chance.choice(KINDS)
        key = f"{kind.name}-{next(self._numbers)}"
        run = await self._app.start(kind.options(id=key), key)
        self._oracle.write("start", key, run.run_id)
        if kind is signalled or kind is cancelled:
            self._to_signal.append((run, 0))

    async def _signal_one(self) -> None:
        run, sent = self._to_signal.pop(self._chance.randrange(len(self._to_signal)))
        if run.workflow == cancelled.name:
            await run.cancel(run.id)
            self._oracle.write("cancel", run.id)
            return
        payload = f"{run.id}/{sent}"
        await run.signal(poke, payload)
        self._oracle.write("signal", run.id, payload)
        if sent + 1 < SIGNALS:
            self._to_signal.append((run, sent + 1))


def expected(key: str) -> object:
    """What the run of this key returns, or why it ended."""
    done = steps(key)
    if key.startswith("cancelled"):
        return {"reason": key}
    if key.startswith("signalled"):
        return [done[0], f"{key}/0", done[1], f"{key}/1", *done[2:]]
    return done


def status_of(key: str) -> str:
    """As what the run of this key ends; a cancelled one when it has cleaned up."""
    return "CANCELLED" if key.startswith("cancelled") else "COMPLETED"


def check_prefixes(before: dict[str, list[Recorded]], after: dict[str, list[Recorded]]) -> None:
    """What was read after a kill is the beginning of what is there now."""
    changed = [key for key, history in before.items() if after[key][: len(history)] != history]
    assert changed == []


async def check_kill(site: Site, seen: dict[str, list[Recorded]], oracle: Oracle) -> dict[str, list[Recorded]]:
    """What a killed worker left on disk: everything acknowledged, and nothing that was there has changed."""
    histories = site.histories()
    check_prefixes(seen, histories)
    assert [key for key, run_id in oracle.read("start") if run_id not in histories] == []
    return histories


async def run_cycles(site: Site, cycles: int, *options: str) -> None:
    seed = int(os.environ.get("SEED") or random.SystemRandom().getrandbits(32))
    print(f"seed {seed}")
    chance = random.Random(seed)
    oracle = Oracle(site.folder / "oracle")
    worker = await site.worker(*options)
    again: list[object] = []
    histories: dict[str, list[Recorded]] = {}
    async with site.client() as app:
        client = Client(app, site, oracle, chance)
        feeding = asyncio.create_task(client.feed())
        for _ in range(cycles):
            successor = await site.node(*options).prepare()
            await is_loaded(site, worker)
            # The moment of the kill is chance, not synchronisation.
            await asyncio.sleep(chance.uniform(0.0, 0.25))
            worker.kill()
            assert site.open_runs() >= IN_FLIGHT
            assert not feeding.done(), feeding.exception()
            executed = len(site.effects())
            histories = await check_kill(site, histories, oracle)
            worker = await follow(successor)
            again += repeated(recorded_steps(histories), site.effects()[executed:])
        client.is_closing = True
        await feeding
        await client.finish()
        await until(lambda: site.open_runs() == 0, "all runs end", within=60)
    assert await worker.leave() == 0
    check_end(site, oracle, histories, executed)
    assert again == []


async def is_loaded(site: Site, worker: Node) -> None:
    """Wait until there is enough to lose."""
    await until(lambda: site.owned_by(worker) >= IN_FLIGHT, "enough runs are in flight")


async def follow(successor: Node) -> Node:
    successor.go()
    await successor.hears("ready")
    return successor


def check_end(site: Site, oracle: Oracle, histories: dict[str, list[Recorded]], executed: int) -> None:
    """0 lost, 0 extra, right results, every signal once, nothing recorded was done again."""
    started = dict(oracle.read("start"))
    firsts = "select workflow_id, run_id from runs where parent_id is null and continued_from is null"
    assert dict(site.rows(firsts)) == started
    assert site.outcomes() == {key: (status_of(key), expected(key)) for key in started}
    kinds = Counter(key.split("-", maxsplit=1)[0] for key in started)
    everybody = len(started) + 3 * kinds["family"] + 4 * kinds["generations"]
    assert len(site.rows("select run_id from runs")) == everybody
    received = site.rows("select json_extract(body, '$.payload') from events where kind = 'SignalReceived'")
    assert sorted(payload for (payload,) in received) == sorted(payload for _, payload in oracle.read("signal"))
    check_prefixes(histories, site.histories())
    assert repeated(recorded_steps(histories), site.effects()[executed:]) == []
    assert site.rows("select * from workers") == []
    site.check()
    oracle.close()
    print(f"{len(started)} runs, {len(received)} signals, {len(site.effects())} steps executed")


@pytest.mark.timeout(180)
@pytest.mark.parametrize("disk", ["quick", "slow"])
async def test_five_kills_lose_and_repeat_nothing(site: Site, disk: str) -> None:
    """The promise itself: what was acknowledged survives kill -9, and what was recorded is not done again."""
    await run_cycles(site, 5, *(["--slow-disk"] if disk == "slow" else []))


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("disk", ["quick", "slow"])
async def test_a_hundred_kills_lose_and_repeat_nothing(site: Site, disk: str) -> None:
    """Rare moments are met only by many kills."""
    await run_cycles(site, 100, *(["--slow-disk"] if disk == "slow" else []))
