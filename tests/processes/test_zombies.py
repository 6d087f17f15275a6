"""A worker that is stopped beyond its lease and comes back."""

import asyncio
import json
import os
import random
import signal
import threading
from typing import Any

import pytest

from perdure import Perdure, activity, workflow
from perdure.engine.engine import StoreEngine
from perdure.errors import StoreUnavailable
from tests.processes.clients import Client, Oracle, Witness
from tests.processes.sites import Node, Site, steps, until
from tests.processes.workflows import gated, hurrying, plain, plodding, poke, ticking

LEASE = ("--lease", "1.0")
# Longer than the worker needs to be frozen, so that its timers are due when it wakes.
PAUSE = 0.4
# Steps enough to be stopped in one.
HURRIED = 400
ZOMBIES = int(os.environ.get("ZOMBIES") or 100)


async def freeze(site: Site, node: Node) -> None:
    """Stop a process between its writes."""

    for _ in range(1000):
        node.send(signal.SIGSTOP)
        # Only when all its threads stand still is it known what they hold.
        await until(node.is_frozen, f"node {node.pid} stands still")
        if not site.is_write_locked():
            return
        node.send(signal.SIGCONT)
        await asyncio.sleep(0.001)
    raise AssertionError(f"node {node.pid} was never caught between writes")


async def freeze_in_a_write(site: Site, node: Node) -> None:
    """Stop a process while it holds the lock under which all write."""
    for _ in range(1000):
        node.send(signal.SIGSTOP)
        if await site.is_write_stuck_in(node):
            return
        node.send(signal.SIGCONT)
        await asyncio.sleep(0.001)
    raise AssertionError(f"node {node.pid} was never caught in a write")


def worker_ids(site: Site, node: Node) -> list[str]:
    return [worker_id for (worker_id,) in site.rows("select worker_id from workers where pid = ?", node.pid)]


async def start_some(app: Perdure) -> list[str]:
    """Runs that wait for a signal, for timers, and for activities."""
    for number in range(10):
        await app.start(gated.options(id=f"gated-{number}"), f"gated-{number}")
        await app.start(ticking.options(id=f"ticking-{number}"), f"ticking-{number}", PAUSE)
        await app.start(plodding.options(id=f"plodding-{number}"), f"plodding-{number}", 100)
    return [f"{kind}-{number}" for kind in ("gated", "ticking", "plodding") for number in range(10)]


async def test_a_zombie_commits_nothing_and_begins_anew(site: Site) -> None:
    """Two workers that both believe to own a run must not both write its history."""
    zombie = await site.worker(*LEASE)
    async with site.client() as app:
        keys = await start_some(app)
        await until(lambda: len(site.effects()) > 60 and site.owned_by(zombie) == 30, "the first worker is at work")
        await freeze(site, zombie)
        old_ids = worker_ids(site, zombie)
        frozen = site.histories()
        heir = await site.worker(*LEASE)
        await until(lambda: site.owned_by(heir) == 30, "the second worker takes over")
        for number in range(10):
            await (await app.get(f"gated-{number}")).signal(poke, "")
        await until(lambda: site.open_runs() == 0, "the second worker ends all runs")
        finished = site.histories(), site.outcomes()

        zombie.send(signal.SIGCONT)
        await until(lambda: worker_ids(site, zombie) not in ([], old_ids), "the zombie registers anew")

        assert (site.histories(), site.outcomes()) == finished
        assert {key: history[: len(frozen[key])] for key, history in finished[0].items()} == frozen
        results = {key: steps(key, 100 if key.startswith("plodding") else 5) for key in keys}
        assert finished[1] == {key: ("COMPLETED", result) for key, result in results.items()}
        assert await heir.leave() == 0
        assert await (await app.start(plain, "after")).result(timeout=60) == steps("after")
    assert site.effects()[-1].pid == zombie.pid
    assert await zombie.leave() == 0
    assert site.rows("select worker_id from workers") == []
    site.check()


@pytest.mark.parametrize("delay", [0.0, 0.02, 0.3, 0.6])
async def test_a_zombie_that_is_told_to_stop_does_so(site: Site, delay: float) -> None:
    """A machine that wakes up and shuts down sends SIGTERM to a worker that is just losing its lease."""
    zombie = await site.worker(*LEASE)
    async with site.client() as app:
        await start_some(app)
        await until(lambda: site.owned_by(zombie) == 30, "the first worker is at work")
        await freeze(site, zombie)
        heir = await site.worker(*LEASE)
        await until(lambda: site.owned_by(heir) == 30, "the second worker takes over")

        zombie.send(signal.SIGCONT)
        await asyncio.sleep(delay)

        assert await zombie.leave() == 0
        for number in range(10):
            await (await app.get(f"gated-{number}")).signal(poke, "")
        await until(lambda: site.open_runs() == 0, "the second worker ends all runs")
    assert await heir.leave() == 0
    assert site.rows("select worker_id from workers") == []
    site.check()


calls: list[asyncio.Event] = []


@activity
async def first_call_is_slow(key: str) -> int:
    calls.append(asyncio.Event())
    number = len(calls)
    if number == 1:
        await calls[0].wait()
    return number


@workflow
async def raced(key: str) -> int:
    return await first_call_is_slow(key)


async def test_runs_read_before_the_lease_was_lost_are_not_adopted_after_it(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker that begins anew has an epoch of its own again; what its former self had claimed is not its own."""
    async with site.client() as client:
        run = await client.start(raced, "raced")
        zombie = Perdure(site.url, lease=1.0, workflows=[raced])
        read, go_on = asyncio.Event(), asyncio.Event()
        load_runs = zombie._store.reads.load_runs

        async def load_slowly(*args: Any) -> Any:
            found = await load_runs(*args)
            read.set()
            await go_on.wait()
            return found

        renew, is_frozen = zombie._store.presence.renew, threading.Event()
        monkeypatch.setattr(zombie._store.reads, "load_runs", load_slowly)
        monkeypatch.setattr(zombie._store.presence, "renew", lambda *row: is_frozen.is_set() or renew(*row))
        async with zombie:
            await read.wait()
            engine = zombie._engine
            assert isinstance(engine, StoreEngine)
            former = engine.worker_id
            is_frozen.set()
            async with Perdure(site.url, workflows=[raced]):
                await until(lambda: calls, "the heir executes the step")
                is_frozen.clear()
                await until(lambda: engine.worker_id != former, "the zombie begins anew")
                go_on.set()
                await asyncio.sleep(0.3)
                calls[0].set()
                assert await run.result(timeout=60) == 1
    assert len(calls) == 1
    assert [json.loads(event.body)["result"] for event in site.histories()[run.run_id]] == [1]


@pytest.mark.parametrize("end", ["thawed", "killed"])
async def test_a_process_frozen_in_a_write_holds_others_up_only_until_it_is_thawed_or_killed(
    site: Site, end: str
) -> None:
    """SQLite has one writer: nobody writes past a process that stopped inside a transaction. Nothing may be lost."""
    frozen = await site.worker(*LEASE)
    other = await site.worker(*LEASE)
    async with site.client() as app:
        for number in range(20):
            await app.start(hurrying.options(id=f"hurrying-{number}"), f"hurrying-{number}", HURRIED)
        await until(lambda: site.owned_by(frozen) + site.owned_by(other) == 20, "all runs are owned")
        busy, idle = (frozen, other) if site.owned_by(frozen) else (other, frozen)
        await freeze_in_a_write(site, busy)
        held_up = asyncio.create_task(app.start(plain.options(id="held-up"), "held-up"))
        await asyncio.sleep(1.5)
        assert not held_up.done()
        assert site.value("select count(*) from runs where workflow_id = 'held-up'") == 0

        if end == "thawed":
            busy.send(signal.SIGCONT)
        else:
            busy.kill()

        assert await (await held_up).result(timeout=60) == steps("held-up")
        await until(lambda: site.open_runs() == 0, "all runs end", within=300)
    assert {key: outcome[1] for key, outcome in site.outcomes().items() if key != "held-up"} == {
        f"hurrying-{number}": steps(f"hurrying-{number}", HURRIED) for number in range(20)
    }
    assert await idle.leave() == 0
    site.check()


async def frozen_in_a_write(site: Site, app: Perdure, *options: str) -> tuple[Node, Node]:
    """Two workers, of which the first was stopped while it wrote."""
    nodes = await site.worker(*options), await site.worker(*options)
    for number in range(20):
        await app.start(hurrying.options(id=f"hurrying-{number}"), f"hurrying-{number}", HURRIED)
    await until(lambda: sum(site.owned_by(node) for node in nodes) == 20, "all runs are owned")
    busy, idle = nodes if site.owned_by(nodes[0]) else nodes[::-1]
    await freeze_in_a_write(site, busy)
    return busy, idle


async def count_turns(turns: list[int]) -> None:
    """Note each time the event loop gets to it, until cancelled."""
    while True:
        turns.append(len(turns))
        await asyncio.sleep(0.01)


@pytest.mark.parametrize("end", ["thawed", pytest.param("killed", marks=pytest.mark.long)])
async def test_whoever_waits_for_a_process_that_is_frozen_in_a_write_is_told_its_name(
    site: Site, end: str, caplog: pytest.LogCaptureFixture
) -> None:
    """All others hung with it in silence; now they say whom to end, and go on by themselves."""
    async with site.client() as app:
        busy, idle = await frozen_in_a_write(site, app)
        starts = [app.start(plain.options(id=f"told-{number}"), "told") for number in range(3)]
        turns: list[int] = []
        counting = asyncio.create_task(count_turns(turns))
        answers = await asyncio.gather(*starts, return_exceptions=True)
        counting.cancel()
        # Five seconds long they waited, and the loop did not wait with them.
        assert len(turns) > 10
        for answer in answers:
            assert isinstance(answer, StoreUnavailable)
            assert f"process {busy.pid}, which is stopped, holds its write lock" in str(answer)
            assert f"`kill -CONT {busy.pid}`" in str(answer)
        with pytest.raises(StoreUnavailable, match="which is stopped"):
            await asyncio.wait_for(app.start(plain.options(id="told-3"), "told"), 60)
        assert (await (await app.get("hurrying-0")).describe()).status == "RUNNING"
        blocked = [record for record in caplog.records if getattr(record, "event", "") == "writer_blocked"]
        assert len(blocked) == 1
        assert site.value("select count(*) from runs where workflow_id like 'told%'") == 0

        if end == "thawed":
            busy.send(signal.SIGCONT)
        else:
            busy.kill()

        await until(lambda: site.open_runs() == 0, "all runs end", within=300)
        assert await (await app.start(plain.options(id="after"), "after")).result(timeout=60) == steps("after")
    assert await idle.leave() == 0
    assert {key for key, outcome in site.outcomes().items() if outcome[0] != "COMPLETED"} == set()
    site.check()


@pytest.mark.long
async def test_a_worker_can_leave_while_another_is_frozen_in_a_write(site: Site) -> None:
    """Whoever restarts a service must not have to find the frozen process first."""
    async with site.client() as app:
        busy, idle = await frozen_in_a_write(site, app)
        with pytest.raises(StoreUnavailable):
            await app.start(plain.options(id="told"), "told")
        assert await idle.leave() == 0
        with pytest.raises(StoreUnavailable, match="which is stopped"):
            async with Perdure(site.url):
                pass
        busy.send(signal.SIGCONT)
        await until(lambda: site.open_runs() == 0, "all runs end", within=300)
    assert await busy.leave() == 0
    site.check()


@pytest.mark.long
async def test_runs_are_not_taken_over_because_nobody_could_write(site: Site) -> None:
    """A worker whose row stood still for its lease, while nobody could write, is not gone."""
    async with site.client() as app:
        busy, idle = await frozen_in_a_write(site, app, "--lease", "9")
        workers = site.rows("select worker_id, epoch from workers")
        await asyncio.sleep(13)
        busy.send(signal.SIGCONT)
        await until(lambda: site.open_runs() == 0, "all runs end", within=300)
        assert site.rows("select worker_id, epoch from workers") == workers
        for node in (busy, idle):
            assert await node.leave() == 0
    site.check()


async def run_zombies(site: Site, cycles: int) -> None:
    """Freeze one of two workers under load until the other has its runs, and let it come back, again and again."""
    oracle = Oracle()
    witness = Witness(site, oracle, may_repeat=True)
    workers = [await site.worker(*LEASE, "--tell-fenced") for _ in range(2)]
    async with site.client() as app:
        client = Client(app, site, oracle, random.Random(cycles))
        feeding = asyncio.create_task(client.feed())
        for number in range(cycles):
            await haunt(site, workers[number % 2], witness)
            assert not feeding.done(), feeding.exception()
        client.is_closing = True
        await feeding
        await client.finish()
        await until(lambda: site.open_runs() == 0, "all runs end", within=300)
    assert [await worker.leave() for worker in workers] == [0, 0]
    witness.check()
    assert site.rows("select * from workers") == []
    fenced = sum(len(worker.heard("fenced")) for worker in workers)
    print(
        f"{cycles} zombies, {fenced} commits refused, {len(oracle.read('start'))} runs, {len(witness.again)} repeated"
    )


async def haunt(site: Site, zombie: Node, witness: Witness) -> None:
    """Freeze a worker between its writes until another one has its runs; then let it come back."""
    await until(lambda: site.owned_by(zombie) >= 10, "it has something to lose")
    await freeze(site, zombie)
    try:
        former = worker_ids(site, zombie)
        await until(lambda: worker_ids(site, zombie) == [], "it is taken over")
        witness.look()
    finally:
        zombie.send(signal.SIGCONT)
    await until(lambda: worker_ids(site, zombie) not in ([], former), "it begins anew")


async def test_zombies_under_load_change_nothing(site: Site) -> None:
    """Whatever a frozen process had under way, the histories of its heirs stay theirs."""
    await run_zombies(site, 3)


@pytest.mark.long
@pytest.mark.timeout(1200)
async def test_a_hundred_zombies_under_load_change_nothing(site: Site) -> None:
    """The late commit that is not fenced is a rare one."""
    await run_zombies(site, ZOMBIES)
