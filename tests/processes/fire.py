"""Under fire: every bar that real processes have to pass, run once, with a table at the end.

    python -m tests.processes.fire [NAME ...]

Takes about an hour for all of them; two and four processes share a file for ten minutes each.
"""

import re
import subprocess
import sys
import time
from collections.abc import Mapping
from typing import NamedTuple

from tests.processes.failpoints import FAILPOINTS
from tests.processes.nodes import ROOT


class Bar(NamedTuple):
    """What is done how often, and the tests that do it."""

    times: str
    tests: str
    marks: str = "long"


BARS = {
    "kill-cycles": Bar("2 x 500 kills", "test_kill_cycles.py"),
    "unwinding": Bar("100 kills", "test_unwinding.py"),
    "transactions": Bar("200 kills", "test_transactions.py"),
    "failpoints": Bar(f"3 x {len(FAILPOINTS)} deaths", "test_failpoints.py", "long or not long"),
    "holders": Bar("50 kills", "test_schedules.py"),
    "outbox-writers": Bar("100,000 events", "test_outbox.py"),
    "servers": Bar("100 kills", "test_servers.py"),
    "zombies": Bar("100 zombies", "test_zombies.py"),
    "company": Bar("2 x 10 minutes", "test_company.py"),
    "io-errors": Bar("4 x 300 calls", "test_io_errors.py", "long or not long"),
    "power-loss": Bar("2,000 images", "test_power_loss.py"),
    "disk-full": Bar("20 times", "test_disk_full.py"),
    "backups": Bar("20 backups", "test_backup.py"),
}


class Row(NamedTuple):
    """How a bar was passed."""

    name: str
    times: str
    passed: int
    failed: int
    skipped: int
    seconds: float


def run(name: str, bar: Bar, folder: str) -> Row:
    command = [sys.executable, "-m", "pytest", "-s", "-m", bar.marks, f"{folder}/{bar.tests}"]
    began = time.monotonic()
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)
    took = time.monotonic() - began
    print(done.stdout, flush=True)
    passed, failed, skipped = (_tally(done.stdout, word) for word in ("passed", "failed", "skipped"))
    return Row(name, bar.times, passed, failed, skipped, took)


def _tally(said: str, word: str) -> int:
    found = re.findall(rf"(\d+) {word}", said.strip().rpartition("\n")[2])
    return int(found[0]) if found else 0


def main(names: list[str], bars: Mapping[str, Bar] = BARS, folder: str = "tests/processes") -> int:
    rows = [run(name, bars[name], folder) for name in names or bars]
    print(f"{'command':<24} {'count':<16} {'tests':>6} {'failures':>9} {'skipped':>8} {'seconds':>8}")
    for row in rows:
        command = f"make {row.name}"
        print(f"{command:<24} {row.times:<16} {row.passed:>6} {row.failed:>9} {row.skipped:>8} {row.seconds:>8.0f}")
    return int(any(row.failed or not row.passed for row in rows))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
