"""Injections: errors of the disk, put between a node and the kernel by `strace`.

In:   a node that waits, which call is to fail how, and which time or from which time on.
Out:  whether it failed; an end of it all when the disk is to be well again.
"""

import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import pytest

from tests.processes.nodes import Node, until

CALLS = "fdatasync,pwrite64"


class Injection:
    """Errors in the calls of one node on the files of a database."""

    def __init__(self, node: Node, database: Path, call: str, error: str, when: str) -> None:
        self._log = node.log.with_suffix(".strace")
        files = [f"--trace-path={database}{suffix}" for suffix in ("", "-wal", "-shm")]
        inject = f"--inject={call}:error={error}:when={when}"
        command = ["strace", "-f", "-qq", "-o", str(self._log), *files, f"--trace={CALLS}", inject, "-p", str(node.pid)]
        self._node = node
        self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE)

    async def is_ready(self) -> None:
        await until(lambda: tracer_of(self._node.pid) == self._process.pid, "strace has the node")

    def has_struck(self) -> bool:
        """Whether at least one call failed."""
        return self._log.exists() and "(INJECTED)" in self._log.read_text(errors="replace")

    def end(self) -> None:
        """All is well again."""
        self._process.send_signal(signal.SIGINT)
        try:
            self._process.communicate(timeout=60)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()


def tracer_of(pid: int) -> int:
    """Which process traces this one; 0 for none."""
    try:
        found = re.search(r"TracerPid:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())
    except FileNotFoundError:
        return 0
    return int(found.group(1)) if found else 0


@cache
def can_trace() -> bool:
    """Whether strace is here, and may trace."""
    if shutil.which("strace") is None:
        return False
    done = subprocess.run(["strace", "-qq", "-o", os.devnull, "true"], capture_output=True, check=False)
    return done.returncode == 0


def need_strace() -> None:
    """Skip a test where there is no strace, or it may not trace."""
    if not can_trace():
        pytest.skip("strace is not installed, or may not trace processes here")


@contextmanager
def injected(node: Node, database: Path, call: str, error: str, when: str) -> Iterator[Injection]:
    """The disk fails, and at the end of the block no more."""
    injection = Injection(node, database, call, error, when)
    try:
        yield injection
    finally:
        injection.end()
