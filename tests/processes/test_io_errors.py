"""A disk that fails: errors of the kernel on each of the first writes and syncs of a process."""

import os
import resource
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.processes.injections import injected, need_strace
from tests.processes.nodes import until
from tests.processes.sites import Site
from tests.processes.verdicts import check_clean_start, check_typed

ERRORS = [("fdatasync", "EIO"), ("fdatasync", "ENOSPC"), ("pwrite64", "EIO"), ("pwrite64", "ENOSPC")]
FIRST = int(os.environ.get("CALLS") or 300)
# Runs that must be acknowledged after the blow before it is taken to have been survived.
MORE = 3


async def fail_once(folder: Path, call: str, error: str, number: int) -> str:
    """Let the n-th call fail, go on, kill the process and start another one; answers what became of the process."""
    folder.mkdir()
    site = Site(folder)
    try:
        node = await site.node("--habit", "work_through").prepare()
        with injected(node, site.path, call, error, str(number)) as injection:
            await injection.is_ready()
            node.go()
            await until(lambda: injection.has_struck() or not node.is_running(), f"{call} {number} fails")
            told = len(node.heard("started"))
            await until(lambda: len(node.heard("started")) >= told + MORE or not node.is_running(), "it goes on")
        fate = await check_typed(node)
        if fate == "went on":
            fate = f"{fate}, epoch {site.value('select max(epoch) from workers')}"
        node.kill()
        await check_clean_start(site, node)
    finally:
        site.end()
    return fate


async def fail_each(folder: Path, call: str, error: str, numbers: Iterable[int]) -> None:
    fates = Counter([await fail_once(folder / str(number), call, error, number) for number in numbers])
    print(f"{call} {error}: {dict(fates)}")
    if call == "fdatasync":
        # Whether a commit whose sync failed is on disk is not known: a new epoch tells. A checkpoint may fail unseen.
        assert fates["went on, epoch 1"] <= fates.total() // 10


@pytest.mark.parametrize(("call", "error"), ERRORS)
async def test_a_call_to_the_disk_fails_once(tmp_path: Path, call: str, error: str) -> None:
    """Be it in the first write of a new file or in the middle of a commit, nothing acknowledged is lost."""
    need_strace()
    await fail_each(tmp_path, call, error, [1, 2, 5, 17])


@pytest.mark.long
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("hundred", range(0, FIRST, 100))
@pytest.mark.parametrize(("call", "error"), ERRORS)
async def test_every_one_of_the_first_calls_to_the_disk_fails(
    tmp_path: Path, call: str, error: str, hundred: int
) -> None:
    """Every write and every sync is one that can fail."""
    need_strace()
    await fail_each(tmp_path, call, error, range(hundred + 1, min(hundred + 100, FIRST) + 1))


async def cut_short(folder: Path, largest: int) -> str:
    """Let the write that goes beyond so many bytes be cut short and all after it fail; then let files grow again."""
    folder.mkdir()
    site = Site(folder)
    try:
        node = await site.node("--habit", "work_through", "--largest-file", str(largest)).prepare()
        node.go()
        await until(lambda: len(node.heard("refused")) > 2 or not node.is_running(), "callers are told")
        if node.is_running():
            told = len(node.heard("started"))
            resource.prlimit(node.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
            await until(lambda: len(node.heard("started")) > told + MORE, "it goes on by itself")
        fate = await check_typed(node)
        node.kill()
        await check_clean_start(site, node)
    finally:
        site.end()
    return fate


async def cut_each_short(folder: Path, lengths: Iterable[int]) -> None:
    fates = Counter([await cut_short(folder / str(length), length) for length in lengths])
    print(f"writes cut short: {dict(fates)}")
    assert fates["went on"]


async def test_a_write_is_cut_short(tmp_path: Path) -> None:
    """A disk that has room for half a page writes half a page."""
    await cut_each_short(tmp_path, [5_000, 700_001, 1_000_003])


@pytest.mark.long
@pytest.mark.timeout(600)
async def test_a_write_is_cut_short_at_many_places(tmp_path: Path) -> None:
    """In the head of a frame, in its page, at its end."""
    await cut_each_short(tmp_path, range(1, 1_200_000, 9_973))


async def fail_for_a_while(site: Site, call: str, error: str, start: int, *options: str) -> None:
    """From some call on all fail, until the disk is well again; then the process goes on by itself."""
    worker = await site.worker() if "--client" in options else None
    node = await site.node("--habit", "work_through", "--habit", "look_often", *options).prepare()
    with injected(node, site.path, call, error, f"{start}+") as injection:
        await injection.is_ready()
        node.go()
        await until(injection.has_struck, f"{call} fails from the {start}th on")
        refused, read = len(node.heard("refused")), len(node.heard("read"))
        await until(lambda: len(node.heard("refused")) > refused + 2, "callers are told")
        await until(lambda: len(node.heard("read")) > read + 5, "reads go on")
        told = len(node.heard("started"))
    await until(lambda: len(node.heard("started")) > told + MORE, "it goes on by itself")
    assert await check_typed(node) == "went on"
    assert node.heard("unread") == []
    node.kill()
    if worker is not None:
        assert await worker.leave() == 0
    await check_clean_start(site, node)


@pytest.mark.parametrize("options", [(), ("--client",), ("--slow-disk",)], ids=["worker", "client", "slow disk"])
@pytest.mark.parametrize(("call", "error"), ERRORS)
async def test_a_disk_fails_for_a_while(site: Site, call: str, error: str, options: tuple[str, ...]) -> None:
    """Callers are told soon, and nobody has to restart anything when the disk is back."""
    need_strace()
    # Beyond what it takes to make the tables.
    await fail_for_a_while(site, call, error, 400, *options)
