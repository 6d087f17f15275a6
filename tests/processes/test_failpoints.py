"""A process dies at every named moment of its life, and another one finishes what it began."""

import asyncio
import random
import signal

import pytest

from perdure import Perdure
from tests.processes.clients import Client, Oracle, Witness
from tests.processes.failpoints import CODE, FAILPOINTS, Situation
from tests.processes.sites import Node, Site, until

QUICK = ("--lease", "1.0", "--park-after", "0.1")


async def die_and_recover(site: Site, name: str, number: int, runs_of_each_kind: int, *options: str) -> None:
    """Let a node die there, under a load it has begun with; then let another one end everything."""
    oracle = Oracle()
    witness = Witness(site, oracle)
    situation = FAILPOINTS[name].situation
    dying = await site.node("--fail-at", f"{name}:{number}", *QUICK, *options).prepare()
    if situation == Situation.START:
        await dies(dying, name)
    async with site.client() as app:
        client = Client(app, site, oracle, random.Random(number))
        await client.start_each(runs_of_each_kind)
        if situation != Situation.START:
            await bring_about(site, app, client, dying, situation)
            await dies(dying, name)
        witness.look()
        await client.finish()
        heir = await site.worker(*options)
        await until(lambda: site.open_runs() == 0, "the heir ends all runs")
    assert await heir.leave() == 0
    witness.check()
    assert site.rows("select * from workers") == []


async def dies(node: Node, name: str) -> None:
    if not node.heard("ready") and node.is_running():
        node.go()
    assert await node.ends() == CODE, node.log.read_text()
    assert node.heard("struck") == [name]


async def bring_about(site: Site, app: Perdure, client: Client, dying: Node, situation: str) -> None:
    """Make what has to happen so that the moment comes."""
    if situation == Situation.RESCUE:
        victim = await site.worker()
        await until(lambda: site.owned_by(victim) > 5 and len(site.effects()) > 10, "the victim is at work")
        victim.kill()
        return
    dying.go()
    await until(lambda: dying.heard("ready") or not dying.is_running(), "the dying node is at work")
    if situation == Situation.LEAVE:
        await until(lambda: site.owned_by(dying) > 5, "there is something to hand back")
        dying.send(signal.SIGTERM)
        return
    await asyncio.sleep(0.05)
    await client.signal_each()


@pytest.mark.parametrize("name", FAILPOINTS)
async def test_whatever_dies_there_is_finished_by_another_process(site: Site, name: str) -> None:
    """Bugs of recovery hide in moments that a random kill meets once in a million."""
    await die_and_recover(site, name, 1, 1)


@pytest.mark.long
@pytest.mark.parametrize("disk", ["quick", "slow"])
@pytest.mark.parametrize("name", FAILPOINTS)
async def test_whatever_dies_there_under_load_is_finished_by_another_process(site: Site, name: str, disk: str) -> None:
    """The n-th time finds much under way that the first time does not."""
    slow = ["--slow-disk"] if disk == "slow" else []
    await die_and_recover(site, name, FAILPOINTS[name].often, 8, *slow)
