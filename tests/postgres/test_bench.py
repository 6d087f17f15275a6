"""The benchmark on Postgres runs, small: what it says of speed is for `make bench-postgres`."""

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from bench.database import connected
from bench.server import LockWaits


@pytest.mark.parametrize(
    "scenarios", [("S2",), pytest.param(("crew", "knocks", "transactions", "streams", "undos"), marks=pytest.mark.long)]
)
def test_the_quick_benchmark_runs_on_a_postgres_server(
    postgres: str, tmp_path: Path, scenarios: tuple[str, ...]
) -> None:
    """Nobody runs the long one every day; what it is made of must not break meanwhile."""
    results = tmp_path / "results.json"
    command = [sys.executable, "-m", "bench", "--store", postgres, "--quick", "--json", str(results), *scenarios]

    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=500)

    assert done.returncode == 0, done.stderr
    found = msgspec.json.decode(results.read_bytes())
    assert found["store"].startswith("Postgres ")
    assert set(found["pairs"]) == set(scenarios)
    with connected(postgres) as db:
        left = db.execute("select nspname from pg_namespace where nspname like 'bench%'").fetchall()
    assert left == []


def test_a_wait_for_a_lock_is_read_from_the_log_of_the_server(tmp_path: Path) -> None:
    """That nobody waits is shown by what the log does not say; it must say it when somebody does."""
    log = tmp_path / "log"
    log.write_text("LOG:  process 7 still waiting for ShareLock on transaction 9 after 5.1 ms\n")
    waits = LockWaits(log)
    assert waits.longest_ms() == 0
    with log.open("a") as file:
        file.write("LOG:  process 7 acquired ShareLock on transaction 9 after 12.345 ms\n")
        file.write("LOG:  process 8 acquired ExclusiveLock on extension of relation 1 of database 5 after 6.5 ms\n")

    assert waits.longest_ms() == 12.345
    assert waits.what == "ShareLock on transaction 9"
    assert waits.longest_ms() == 0
    assert LockWaits(None).longest_ms() is None
