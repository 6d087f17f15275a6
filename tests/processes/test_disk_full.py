"""A disk that is full: callers are told, reads go on, and work resumes by itself when there is room."""

import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from tests.processes.nodes import ROOT

SCRIPT = 'mount -t tmpfs -o size=64m tmpfs "$1" && exec "$3" -m tests.processes.full_disk "$1" "$2" "$4"'
CYCLES = 20


@cache
def can_mount(folder: Path) -> bool:
    """Whether a file system of our own can be mounted where nobody else sees it."""
    command = ["unshare", "--mount", "mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)]
    try:
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False


def fill_a_disk(folder: Path, cycles: int) -> None:
    disk = folder / "disk"
    disk.mkdir()
    if not can_mount(disk):
        pytest.skip("only root may mount a small file system to fill")
    command = ["unshare", "--mount", "sh", "-c", SCRIPT, "sh", str(disk), str(folder), sys.executable, str(cycles)]
    done = subprocess.run(
        command, cwd=ROOT, env=dict(os.environ), capture_output=True, text=True, check=False, timeout=600
    )
    print(done.stdout)
    assert done.returncode == 0, done.stderr


def test_a_full_disk_stops_nothing_for_good(tmp_path: Path) -> None:
    """Whoever makes room must not have to restart anything."""
    fill_a_disk(tmp_path, 1)


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_disk_that_is_full_again_and_again_stops_nothing_for_good(tmp_path: Path) -> None:
    """Each time finds the log and the database at another length."""
    fill_a_disk(tmp_path, CYCLES)
