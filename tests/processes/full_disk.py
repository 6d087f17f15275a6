"""A disk that is full and gets room again, over and over, under load.

    unshare --mount sh -c 'mount -t tmpfs -o size=64m tmpfs DISK &&
                           python -m tests.processes.full_disk DISK FOLDER CYCLES'

The disk holds the database alone, the folder all the rest. Ends with an error when anything is not as promised.
"""

import asyncio
import sys
import time
from pathlib import Path

from tests.processes.nodes import Node, until
from tests.processes.sites import Site
from tests.processes.verdicts import check_clean_start, check_typed

RESUME_SECONDS = 120.0


def fill(ballast: Path) -> None:
    """Take every byte that is left."""
    with ballast.open("ab", buffering=0) as file:
        for size in (1 << 20, 1 << 12, 1):
            try:
                while True:
                    file.write(bytes(size))
            except OSError:
                continue


async def fill_and_free(node: Node, ballast: Path) -> float:
    """Fill the disk until callers are told, see that reads go on, make room; answers how long work took to resume."""
    refused = len(node.heard("refused"))

    def is_refused() -> bool:
        # What the database gives back is taken as well.
        fill(ballast)
        return len(node.heard("refused")) > refused + 2

    await until(is_refused, "callers are told that the disk is full")
    read = len(node.heard("read"))
    await until(lambda: len(node.heard("read")) > read + 5, "reads go on")
    ballast.unlink()
    started = len(node.heard("started"))
    began = time.monotonic()
    await until(lambda: len(node.heard("started")) > started + 3, "work resumes", within=RESUME_SECONDS)
    return time.monotonic() - began


async def main(disk: Path, folder: Path, cycles: int) -> None:
    site = Site(folder, disk)
    try:
        node = await site.worker("--habit", "work_through", "--habit", "look_often")
        took = [await fill_and_free(node, disk / "ballast") for _ in range(cycles)]
        assert await check_typed(node) == "went on"
        assert node.heard("unread") == []
        node.kill()
        await check_clean_start(site, node)
    finally:
        site.end()
    started, refused, read = (len(node.heard(word)) for word in ("started", "refused", "read"))
    print(f"{cycles} times full, {started} runs, {refused} refused, {read} reads, resumed within {max(took):.1f} s")


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])))
