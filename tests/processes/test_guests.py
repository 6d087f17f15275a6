"""User code in a worker's process that uses the same database file."""

import asyncio
import sqlite3
import subprocess
import sys
from contextlib import closing

import pytest

from perdure import Perdure
from tests.processes.sites import Node, Site, steps, until
from tests.processes.workflows import EFFECTS, plain

# Another process that looks at the file for a moment, as a command line or a browser for databases does.
PASSER_BY = """
import sqlite3, sys
db = sqlite3.connect(sys.argv[1])
print(db.execute("select count(*) from runs").fetchone()[0])
db.close()
"""


def pass_by(site: Site) -> int:
    done = subprocess.run(
        [sys.executable, "-c", PASSER_BY, str(site.path)], capture_output=True, text=True, check=True, timeout=120
    )
    return int(done.stdout)


async def until_more(node: Node) -> None:
    """Until the node has got some more runs acknowledged."""
    known = len(node.heard("started"))
    await until(lambda: len(node.heard("started")) > known + 20, "more runs are acknowledged")


def missing(site: Site, node: Node) -> list[str]:
    """What the node was told is on disk, and is not."""
    acknowledged = {*node.heard("started"), *node.heard("noted")}
    found = {key for (key,) in site.rows("select workflow_id from runs")}
    if node.heard("noted"):
        found |= {f"{pid} {number}" for pid, number in site.rows("select pid, number from notes")}
    return sorted(acknowledged - found)


@pytest.mark.parametrize("habit", ["use_sqlite", "read_file", "open_twice"])
async def test_user_code_that_opens_the_same_file_does_no_harm(site: Site, habit: str) -> None:
    """POSIX drops all locks of a process on a file when it closes any descriptor of that file.

    Then another process that closes the database takes itself for the last one and removes the
    log of changes, while the worker goes on writing into the removed file: acknowledged and lost.
    """
    worker = await site.worker("--habit", "start_runs", "--habit", habit)
    for _ in range(5):
        await until_more(worker)
        pass_by(site)
    await until_more(worker)
    worker.kill()

    assert missing(site, worker) == []
    assert site.value("pragma integrity_check") == "ok"
    second = await site.worker()
    await until(lambda: site.open_runs() == 0, "all runs end")
    # One more may be there: on disk, and the process killed before it could say so.
    assert len(site.outcomes()) - len(worker.heard("started")) in {0, 1}
    assert site.outcomes() == {key: ("COMPLETED", steps(key)) for key in site.outcomes()}
    assert await second.leave() == 0
    site.check()


async def test_a_transaction_of_user_code_does_not_stop_the_loop(
    site: Site, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A coroutine that holds a transaction across an await can only end it while the loop turns."""
    monkeypatch.setenv(EFFECTS, str(site.effects_path))
    async with Perdure(site.url) as app:
        with closing(sqlite3.connect(site.path, isolation_level=None)) as db:
            db.execute("create table notes (number integer)")
            db.execute("begin immediate")
            db.execute("insert into notes values (1)")
            running = asyncio.create_task(app.run(plain, "key"))
            await asyncio.sleep(0.1)
            db.execute("commit")
            assert await running == steps("key")
    # Had the loop waited for itself, SQLite would have given up in the end, and the worker would tell.
    assert [record.getMessage() for record in caplog.records] == []
