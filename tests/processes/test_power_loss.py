"""The power fails: whatever the disk had not been told to keep may be gone, in any combination."""

import os
import random
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.processes.injections import need_strace
from tests.processes.nodes import until
from tests.processes.recordings import Disk, Entry, Told, is_recording, read_log, recorded
from tests.processes.sites import Site, steps

IMAGES = int(os.environ.get("IMAGES") or 2000)
# Of so many images one is worked on to the end.
LIVELY = 100


async def record(site: Site, runs: int, *options: str) -> list[Entry]:
    """What a node under load does to its files, from their first byte on."""
    node = await site.node("--habit", "work_through", "--lease", "1.0", *options).prepare()
    log = site.folder / "calls"
    with recorded(node, log):
        await is_recording(node)
        node.go()
        await until(lambda: len(node.heard("ended")) >= runs, "enough has happened", within=300)
        node.kill()
    return read_log(log, site.path)


async def cut_power(site: Site, entries: list[Entry], images: int) -> None:
    """Cut the power at so many moments, and see what is left."""
    seed = int(os.environ.get("SEED") or random.SystemRandom().getrandbits(32))
    print(f"seed {seed}, {len(entries)} calls")
    chance, disk = random.Random(seed), Disk()
    moments = sorted(chance.randrange(len(entries)) for _ in range(images))
    told: dict[str, set[str]] = {"started": set(), "ended": set()}
    for number, entry in enumerate(entries):
        while moments and moments[0] == number:
            moments.pop(0)
            image = disk.image(site.folder / "image", chance)
            check_image(image, told)
            if len(moments) % LIVELY == LIVELY // 2:
                await work_on(image)
            shutil.rmtree(image.parent)
        disk.take(entry)
        if isinstance(entry, Told) and entry.words.split(" ")[0] in told:
            kind, key = entry.words.split(" ")
            told[kind].add(key)
    assert told["ended"]


def check_image(image: Path, told: dict[str, set[str]]) -> None:
    """The file is whole, and everything that was told is in it."""
    with closing(sqlite3.connect(image)) as db:
        assert db.execute("pragma integrity_check").fetchall() == [("ok",)]
        if not told["started"]:
            return
        found = dict(db.execute("select workflow_id, status from runs").fetchall())
        assert told["started"] - found.keys() == set()
        assert {key for key in told["ended"] if found[key] != "COMPLETED"} == set()
        torn = """
            select run_id
              from runs
              left join events using (run_id)
             group by run_id
            having count(seq) != coalesce(max(seq) - 1, 0)
                or (closed_at is not null and last_seq != count(seq) + 2)
                or count(place) != count(distinct place)"""
        assert db.execute(torn).fetchall() == []


async def work_on(image: Path) -> None:
    """A worker that starts on what is left ends everything; that nobody lives, the lease tells: the locks are gone."""
    site = Site(image.parent)
    try:
        worker = await site.worker("--lease", "1.0")
        await until(lambda: site.open_runs() == 0, "all runs end")
        assert await worker.leave() == 0
        assert [key for key, outcome in site.outcomes().items() if outcome != ("COMPLETED", steps(key))] == []
        site.check()
    finally:
        site.end()


@pytest.mark.parametrize("options", [(), ("--slow-disk",)], ids=["quick disk", "slow disk"])
async def test_whatever_was_told_survives_a_loss_of_power(site: Site, options: tuple[str, ...]) -> None:
    """A kill leaves the kernel to write what it has; a loss of power does not."""
    need_strace()
    await cut_power(site, await record(site, 30, *options), 100)


@pytest.mark.long
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("options", [(), ("--slow-disk",)], ids=["quick disk", "slow disk"])
async def test_whatever_was_told_survives_thousands_of_losses_of_power(site: Site, options: tuple[str, ...]) -> None:
    """Long enough for the log to be copied into the database and begun anew, several times."""
    need_strace()
    await cut_power(site, await record(site, 600, *options), IMAGES // 2)
