"""Many at once, in a real process that is killed with -9 in the middle, and once more."""

import subprocess
import sys
from pathlib import Path

import pytest

from perdure import Perdure, Signal, workflow

RUNS = 400
PROGRAM = """
import asyncio, sys
from perdure import Perdure

async def main():
    async with Perdure(sys.argv[1], worker=False) as app:
        def told(found):
            print(found.done, flush=True)
            if found.done >= 200:
                # Here it is killed.
                sys.stdin.read()
        if sys.argv[2] == "pause":
            await app.pause_all(where="workflow = 'killed_in_bulk'", progress=told)
        else:
            await app.broadcast("told", 1, where="workflow = 'killed_in_bulk'", id="once", progress=told)

asyncio.run(main())
"""

told = Signal("told", int)


@workflow
async def killed_in_bulk() -> int:
    return await told.receive()


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "postgres":
        return str(request.getfixturevalue("empty_url"))
    return f"sqlite:///{tmp_path / 'bulk.db'}"


def killed(url: str, what: str) -> int:
    """A process that is killed after half of the runs, or a few more: how many were done."""
    command = [sys.executable, "-c", PROGRAM, url, what]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if (done := int(line)) >= RUNS // 2:
                process.kill()
                break
    assert process.returncode == -9
    assert done < RUNS
    return done


async def test_the_same_call_does_the_rest(url: str) -> None:
    """What was done is done, whole; what was not is done now, and nothing twice."""
    async with Perdure(url, worker=False) as app:
        runs = await app.start_many(*(killed_in_bulk.call() for _ in range(RUNS)))
        assert len(runs) == RUNS
        done = killed(url, "pause")
        assert await app.count(where="held = 'paused'") == done
        again = await app.pause_all(where="workflow = 'killed_in_bulk' and held is null")
        assert (again.matched, again.done, again.skipped, again.errors) == (RUNS - done, RUNS - done, 0, {})
        done = killed(url, "broadcast")
        again = await app.broadcast(told, 1, where="workflow = 'killed_in_bulk'", id="once")
        assert (again.matched, again.done, again.skipped, again.errors) == (RUNS, RUNS - done, done, {})
        unread = [len(await (await app.get(run_id=info.run_id)).unread()) for info in await app.list(limit=RUNS)]
        assert unread == [1] * RUNS
