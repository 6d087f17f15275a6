"""A worker process: opens a database, works it, and leaves when it is told to.

    python -m tests.processes.node URL [--lease S] [--grace S] [--park-after S] [--fail-at NAME:N] [--habit NAME ...]

Says "imported", waits for a line on its input, says "ready" once it works. SIGTERM and
SIGINT make it leave the `async with` block. A habit is something its user code also does.
"""

import argparse
import asyncio
import itertools
import logging
import multiprocessing
import os
import resource
import signal
import sqlite3
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

from perdure import Perdure, PerdureError, Run
from perdure.app.network.server import begin_server
from perdure.app.network.serving import ServerOptions
from perdure.http.server import Server
from perdure.stores.sqlite import store as sqlite_store
from tests.processes import failpoints, workflows

# Longer than this nobody may be left without an answer, whatever the disk does.
PATIENCE = 60.0
# The exit code of a node that could not open or close its database.
REFUSED = 3

Habit = Callable[[Perdure, Path], Coroutine[Any, Any, None]]

_programs: list[subprocess.Popen[bytes]] = []


def say(*words: object) -> None:
    os.write(1, (" ".join(str(word) for word in words) + "\n").encode())


# What user code may do in a worker's process


async def start_runs(app: Perdure, path: Path) -> None:
    """Start runs, and tell which ones are acknowledged."""
    for number in itertools.count():
        run = await app.start(workflows.timed.options(id=f"own-{os.getpid()}-{number}"), f"own-{os.getpid()}-{number}")
        say("started", run.id)
        await asyncio.sleep(0.002)


async def work_through(app: Perdure, path: Path) -> None:
    """Start runs one after the other until told to stop, and tell what came of each."""
    ends = set()
    for number in itertools.count():
        key = f"plain-{number}"
        try:
            async with asyncio.timeout(PATIENCE):
                run = await app.start(workflows.plain.options(id=key), key)
        except PerdureError as error:
            say("refused", key, type(error).__name__)
            await asyncio.sleep(0.02)
        except TimeoutError:
            say("hung", key)
        except Exception as error:  # noqa: BLE001 - the test wants to see what should not come through
            say("raw", key, repr(error))
        else:
            say("started", key)
            end = asyncio.create_task(_tell_end(run))
            ends.add(end)
            end.add_done_callback(ends.discard)
        await asyncio.sleep(0.003)


async def _tell_end(run: Run[list[str]]) -> None:
    try:
        await run.result()
    except PerdureError:
        return
    say("ended", run.id)


async def look_often(app: Perdure, path: Path) -> None:
    """Read all the time, and tell what came of it."""
    for number in itertools.count():
        try:
            async with asyncio.timeout(PATIENCE):
                await app.list(limit=5)
        except Exception as error:  # noqa: BLE001 - as above
            say("unread", number, repr(error))
        else:
            say("read", number)
        await asyncio.sleep(0.02)


async def use_sqlite(app: Perdure, path: Path) -> None:
    """Keep a table of its own in the same file, through connections of its own."""
    for number in itertools.count():
        db = sqlite3.connect(path)
        with db:
            db.execute("create table if not exists notes (pid integer, number integer)")
            db.execute("insert into notes values (?, ?)", (os.getpid(), number))
        say("noted", os.getpid(), number)
        db.execute("select count(*) from runs").fetchone()
        db.close()
        await asyncio.sleep(0.01)


async def read_file(app: Perdure, path: Path) -> None:
    """Read the file as bytes, as a backup does. Closing it takes away every lock SQLite has on it in this process."""
    while True:
        _read(path)
        await asyncio.sleep(0.01)


async def open_twice(app: Perdure, path: Path) -> None:
    """Open further clients on the same file, one after the other."""
    while True:
        async with Perdure(app.url, worker=False) as client:
            await client.list(limit=1)
        await asyncio.sleep(0.01)


async def fork(app: Perdure, path: Path) -> None:
    """Leave a forked child that lives on."""
    if (pid := os.fork()) == 0:
        _outlive()
    say("child", pid)


async def fork_by_multiprocessing(app: Perdure, path: Path) -> None:
    """Leave a child of `multiprocessing` that lives on."""
    child = multiprocessing.get_context("fork").Process(target=_outlive)
    child.start()
    say("child", child.pid)


async def start_program(app: Perdure, path: Path) -> None:
    """Leave another program that lives on, with all inheritable descriptors."""
    say("child", _start_program())


async def fork_often(app: Perdure, path: Path) -> None:
    """Let children come and go."""
    context = multiprocessing.get_context("fork")
    while True:
        child = context.Process(target=int)
        child.start()
        await asyncio.to_thread(child.join)


def _read(path: Path) -> bytes:
    return path.read_bytes()


def _start_program() -> int:
    _programs.append(subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], close_fds=False))
    return _programs[-1].pid


def _outlive() -> None:
    time.sleep(600)
    os._exit(0)


HABITS: dict[str, Habit] = {
    habit.__name__: habit
    for habit in (
        start_runs,
        work_through,
        look_often,
        use_sqlite,
        read_file,
        open_twice,
        fork,
        fork_by_multiprocessing,
        start_program,
        fork_often,
    )
}


async def work(options: argparse.Namespace) -> None:
    leave = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, leave.set)
    settings: dict[str, Any] = {"worker": not options.client, "lease": options.lease, "park_after": options.park_after}
    settings |= {"max_live": options.max_live, "grace": options.grace}
    async with Perdure(options.url, **settings) as app:
        path = Path(options.url.removeprefix("sqlite:///"))
        habits: list[asyncio.Task[None]] = [asyncio.create_task(HABITS[name](app, path)) for name in options.habit]
        server = await _server(app, options.serve) if options.serve else None
        say("ready", os.getpid())
        await leave.wait()
        if server is not None:
            await server.end(options.grace)
        for habit in habits:
            habit.cancel()
        await asyncio.gather(*habits, return_exceptions=True)


async def _server(app: Perdure, address: str) -> Server:
    server, _ = await begin_server(app, ServerOptions(listen=address, no_auth=True, reuse_port=True))
    return server


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("url")
    parser.add_argument("--lease", type=float, default=30.0)
    parser.add_argument("--grace", type=float, default=10.0)
    parser.add_argument("--park-after", type=float, default=10.0)
    parser.add_argument("--max-live", type=int, default=10_000)
    parser.add_argument("--slow-disk", action="store_true", help="write every batch in the writer thread")
    parser.add_argument("--fail-at", metavar="NAME:N", help="die at this failpoint, the n-th time it comes")
    parser.add_argument("--tell-fenced", action="store_true", help="say when a commit was refused for its epoch")
    parser.add_argument("--largest-file", type=int, help="cut every write short that goes beyond so many bytes")
    parser.add_argument("--client", action="store_true", help="only ask, work nothing")
    parser.add_argument("--serve", metavar="ADDRESS", help="be a server as well, beside others at the same address")
    parser.add_argument("--habit", action="append", choices=HABITS, default=[])
    options = parser.parse_args(words)
    # Python warns of forks in processes with threads since 3.12; a habit does that on purpose.
    warnings.filterwarnings("ignore", ".*fork.*", DeprecationWarning)
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s %(message)s")
    if options.slow_disk:
        sqlite_store.INLINE_BELOW = 0
    if options.largest_file:
        resource.setrlimit(resource.RLIMIT_FSIZE, (options.largest_file, resource.RLIM_INFINITY))
    if options.tell_fenced:
        failpoints.tell_fenced()
    if options.fail_at:
        failpoints.install(options.fail_at)
    say("imported")
    sys.stdin.readline()
    try:
        asyncio.run(work(options))
    except PerdureError as error:
        say("refused", "opening", type(error).__name__)
        sys.exit(REFUSED)
    say("left")


if __name__ == "__main__":
    main()
