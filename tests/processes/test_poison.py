"""A run that kills its process, among many that do not, and workers that are started again each time."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from perdure import Perdure
from tests.processes.sites import Node, Site, steps, until
from tests.processes.workflows import dawdling, deadly, gathered, plain, timed

OTHERS = 300


@asynccontextmanager
async def restarted(site: Site, count: int) -> AsyncIterator[list[Node]]:
    """So many workers, each started again when it dies, as a service manager does it; answers all there were."""
    nodes: list[Node] = []

    async def keep_running() -> None:
        while True:
            node = await site.node().prepare()
            nodes.append(node)
            node.go()
            await until(lambda: not node.is_running(), "a worker dies", within=600)  # noqa: B023 - awaited here

    tasks = [asyncio.create_task(keep_running()) for _ in range(count)]
    try:
        yield nodes
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def held(site: Site) -> list[tuple[str, str]]:
    return [tuple(row) for row in site.rows("select workflow_id, held from runs where held is not null")]


def found(site: Site) -> bool:
    """Whether the poison is held, or known to be what its workers die of; and nobody else is."""
    assert held(site) in ([], [("poison", "quarantine")])
    return bool(held(site) or site.rows("select 1 from runs where workflow_id = 'poison' and losses >= 5"))


async def start_others(app: Perdure, count: int) -> dict[str, list[str]]:
    """Runs of several kinds; what each is to return, by its key."""
    kinds = [plain, timed, plain, gathered]
    keys = [f"run-{number}" for number in range(count)]
    runs = [app.start(kinds[n % len(kinds)].options(id=key), key) for n, key in enumerate(keys)]
    await asyncio.gather(*runs)
    return {key: steps(key) for key in keys}


async def check_one_held(
    site: Site, workers: int, others: int, delay: float, within: float, beside: dict[str, list[str]] | None = None
) -> int:
    """Work until only the poison is left; answers how many workers died of it, until then."""
    async with site.client() as app:
        first = await start_others(app, others // 2)
        await app.start(deadly.options(id="poison"), "poison", delay)
        async with restarted(site, workers) as nodes:
            await until(lambda: nodes and site.rows("select 1 from workers"), "a worker works")
            results = (beside or {}) | first | {f"late-{n}": steps(f"late-{n}") for n in range(others // 2)}
            for number in range(others // 2):
                await app.start(plain.options(id=f"late-{number}"), f"late-{number}")
            await until(lambda: site.open_runs() == 1 and found(site), "all but one run have ended", within)
            died = len(nodes) - workers
            run = await app.get("poison")
            info = await run.describe()

            (site.folder / "mended").touch()
            if info.held is not None:
                # It took others with it five times.
                assert (info.held_report or "").count('"pid"') == 5
                await run.resume()

            # Else it was alone, and is tried again by itself.
            assert await run.result(timeout=120) == steps("poison", 3)
            for node in [node for node in nodes if node.is_running()]:
                assert await node.leave() == 0
    assert {key: outcome for key, outcome in site.outcomes().items() if key != "poison"} == {
        key: ("COMPLETED", result) for key, result in results.items()
    }
    check_logs(site)
    return died


def check_logs(site: Site) -> None:
    """The one error anybody told of is that the run is held."""
    for node in site.nodes:
        kept = [line for line in node.log.read_text().splitlines() if "run 'poison' is held" not in line]
        node.log.write_text("\n".join(kept))
    site.check()


@pytest.mark.parametrize("workers", [1, 2])
async def test_one_poison_run_among_hundreds_is_found_and_mended(site: Site, workers: int) -> None:
    """Without this the whole service dies again and again, and nothing ever ends."""
    died = await check_one_held(site, workers, OTHERS, delay=0.0, within=300)
    assert 5 <= died <= 12


@pytest.mark.long
async def test_a_run_that_kills_after_a_while_is_found_among_others_that_take_long(site: Site) -> None:
    """It outlives the time it is watched; so it is watched for longer, and those that do no harm are not held."""
    keys = [f"dawdling-{number}" for number in range(5)]
    async with site.client() as app:
        for key in keys:
            await app.start(dawdling.options(id=key), key, 8.0)
    died = await check_one_held(site, 1, 100, delay=1.5, within=300, beside={key: steps(key, 1) for key in keys})
    assert died >= 8
