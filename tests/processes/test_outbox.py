"""Events out, with several processes that write to one file."""

import asyncio
import os
import sys
import time
from pathlib import Path

import pytest

from tests.processes.nodes import ROOT
from tests.processes.outbox_writers import counting, ids_of, until_told

WRITERS = 8
EVENTS = int(os.environ.get("EVENTS") or 100_000)


async def write_and_count(url: str, writers: int, events: int) -> None:
    share, began = events // writers, time.monotonic()
    async with counting(url) as (app, told):
        command = (sys.executable, "-m", "tests.processes.outbox_writers", url)
        processes = [
            await asyncio.create_subprocess_exec(*command, str(number), str(share), cwd=ROOT)
            for number in range(writers)
        ]
        assert [await process.wait() for process in processes] == [0] * writers
        written = time.monotonic() - began
        await until_told(app)
    assert told.keys() == {id for number in range(writers) for id in ids_of(number, share)}
    twice = sum(count > 1 for count in told.values())
    took = time.monotonic() - began
    print(
        f"{writers} processes, {len(told):,} events, 0 lost, {twice} twice; {written:.0f} s written, {took:.0f} s told"
    )


async def test_events_of_several_processes_are_told(tmp_path: Path) -> None:
    await write_and_count(f"sqlite:///{tmp_path / 'outbox.db'}", 2, 100)


@pytest.mark.long
@pytest.mark.timeout(3600)
async def test_a_hundred_thousand_events_of_many_processes_are_told(tmp_path: Path) -> None:
    await write_and_count(f"sqlite:///{tmp_path / 'outbox.db'}", WRITERS, EVENTS)
