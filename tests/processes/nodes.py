"""Nodes: worker processes to start, kill, freeze and stop.

In:   options of `tests.processes.node`, and where to write its log.
Out:  what it says, how it ends.
All are forked from one process that has imported everything; see `zygote.py`.
"""

import asyncio
import atexit
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
# What has not happened by then never will, however busy the machine is.
PATIENCE_SECONDS = 120.0

# What must never stand in a node's log: each of these is a fault of the engine, whatever the test was about.
TROUBLES = (
    "ERROR",
    "CRITICAL",
    "Traceback (most",
    "Task was destroyed",
    "never retrieved",
    "never awaited",
    "Exception ignored",
    "Warning:",
    "database is locked",
)


class Zygote:
    """The process that forks nodes; it ends when this one does."""

    def __init__(self) -> None:
        self.socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        command = [sys.executable, "-W", "default", "-m", "tests.processes.zygote", str(theirs.fileno())]
        self._process = subprocess.Popen(
            command, cwd=ROOT, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, start_new_session=True
        )
        theirs.close()
        atexit.register(self.end)

    def end(self) -> None:
        self.socket.close()
        self._process.wait(timeout=PATIENCE_SECONDS)


@cache
def zygote() -> Zygote:
    """The one of this process."""
    return Zygote()


class Node:
    """A worker process."""

    def __init__(self, log: Path, environment: dict[str, str], *options: str) -> None:
        self.log = log
        self.said: list[str] = []
        self.code: int | None = None
        self._ended = threading.Event()
        self._fork(options, environment)
        self._threads = [threading.Thread(target=work, daemon=True) for work in (self._listen, self._await_end)]
        for thread in self._threads:
            thread.start()

    def _fork(self, options: tuple[str, ...], environment: dict[str, str]) -> None:
        (its_input, self._input), (self._output, its_output), (self._fate, its_fate) = os.pipe(), os.pipe(), os.pipe()
        log = os.open(self.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        request = json.dumps({"options": options, "environment": environment}).encode()
        theirs = [its_input, its_output, log, its_fate]
        socket.send_fds(zygote().socket, [request], theirs)
        for file in theirs:
            os.close(file)
        self._told = os.fdopen(self._fate)
        self.pid = int(self._told.readline())

    def _listen(self) -> None:
        with os.fdopen(self._output) as output:
            for line in output:
                self.said.append(line.rstrip("\n"))

    def _await_end(self) -> None:
        self.code = int(self._told.readline() or -signal.SIGKILL)
        self._ended.set()

    def heard(self, word: str) -> list[str]:
        """What it said that begins with this word, without it."""
        return [line.removeprefix(word).strip() for line in list(self.said) if line.split(" ")[0] == word]

    def is_running(self) -> bool:
        return not self._ended.is_set()

    def is_frozen(self) -> bool:
        """Whether all its threads stand still."""
        states = [(task / "stat").read_text().rpartition(")")[2].split()[0] for task in _tasks(self.pid)]
        return all(state in "Tt" for state in states)

    async def hears(self, word: str) -> list[str]:
        """Wait until it says this word."""
        await until(lambda: self.heard(word) or not self.is_running(), f"node {self.pid} says {word!r}")
        if not self.heard(word):
            self._threads[0].join(timeout=1)
        assert self.heard(word), f"node {self.pid} ended:\n{self.log.read_text()}"
        return self.heard(word)

    async def prepare(self) -> "Node":
        """Let it import everything; it waits then."""
        await self.hears("imported")
        return self

    def go(self) -> None:
        """Let it open the database."""
        os.write(self._input, b"go\n")

    async def begin(self) -> "Node":
        """Let it work."""
        await self.prepare()
        self.go()
        await self.hears("ready")
        return self

    def send(self, number: signal.Signals) -> None:
        if self.is_running():
            os.kill(self.pid, number)

    def kill(self) -> None:
        """kill -9, and wait until nothing of it is left."""
        self.send(signal.SIGKILL)
        assert self._ended.wait(timeout=PATIENCE_SECONDS)
        self._threads[0].join(timeout=1)

    async def ends(self, within: float = PATIENCE_SECONDS) -> int:
        """Wait until it has ended; its exit code."""
        await until(lambda: not self.is_running(), f"node {self.pid} ends", within)
        self._threads[0].join(timeout=1)
        assert self.code is not None
        return self.code

    async def leave(self, number: signal.Signals = signal.SIGTERM, within: float = PATIENCE_SECONDS) -> int:
        """Ask it to stop; its exit code."""
        self.send(number)
        return await self.ends(within)

    def end(self) -> None:
        """Nothing of it stays behind, whatever the test did to it."""
        if self.is_running():
            self.kill()
        for child in self.heard("child"):
            _kill_child(int(child))
        for thread in self._threads:
            thread.join(timeout=1)
        if self._input >= 0:
            os.close(self._input)
            self._told.close()
            self._input = -1

    def troubles(self) -> list[str]:
        """Lines of its log that should not be there."""
        lines = self.log.read_text(errors="replace").splitlines()
        return [line for line in lines if any(trouble in line for trouble in TROUBLES)]


async def until(condition: Callable[[], object], what: str, within: float = PATIENCE_SECONDS) -> float:
    """Wait for a condition, looking often; answers how long it took."""
    began = time.monotonic()
    while not condition():
        assert time.monotonic() - began < within, f"not within {within:g} s: {what}"
        await asyncio.sleep(0.01)
    return time.monotonic() - began


def _tasks(pid: int) -> list[Path]:
    return list(Path(f"/proc/{pid}/task").iterdir())


def _kill_child(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return
