"""S7: a process with a thousand runs in flight is killed with -9, and another one goes on.

In:   an empty folder and how many runs.
Out:  seconds from the end of the new process's imports to its first effect and to the last
      run's end; and, beyond dispute, that nothing was lost and no recorded step was repeated.

What was recorded at the moment of the kill is read from a copy of the files, where the database is a
file: opening it would tidy up what the new process is to find.
"""

import shutil
import signal
import sqlite3
import time
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from bench import processes
from bench.database import DATABASE, Numbers, check_rows, looking, rows, server_of
from bench.victim import EFFECTS

STEPS = ("reserve", "pay", "pack", "send")
RECORDED_STEPS = 2
PATIENCE_SECONDS = 120
CLOSED = "select count(*) from runs where closed_at is not null"
RECORDED = "select runs.workflow_id, events.place from events join runs using (run_id)"

Effect = tuple[float, int, str]
Step = tuple[int, str]


def measure(folder: Path, runs: int) -> Numbers:
    """Kill, restart, and compare what was recorded with what was done."""
    recorded = _start_and_kill(folder, runs)
    before = _effects(folder)
    imported_at, done_at = _go_on(folder, runs)
    check_rows(folder, runs, runs * len(STEPS))
    ((closed,),) = rows(folder, CLOSED)
    _check_results(folder, runs)
    after = _effects(folder)[len(before) :]
    again = Counter((number, step) for _, number, step in after)
    return {
        "in_flight": float(len({number for number, _ in recorded})),
        "recorded_steps": float(len(recorded)),
        "first_progress_s": min(at for at, _, _ in after) - imported_at,
        "all_done_s": done_at - imported_at,
        "lost": float(runs - closed),
        "recorded_steps_repeated": float(sum(again[step] for step in recorded)),
        "unrecorded_steps_repeated": float(len({(number, step) for _, number, step in before} & again.keys())),
    }


def _start_and_kill(folder: Path, runs: int) -> set[Step]:
    """The steps that were on disk when the process died, with every run in its slow step."""
    with processes.begun("bench.victim", folder, runs) as victim:
        assert processes.said(victim, "started") == runs
        _wait_until(lambda: sum(step == "pack" for _, _, step in _effects(folder)) == runs)
        victim.send_signal(signal.SIGKILL)
        victim.wait()
    recorded = _recorded(folder)
    assert len(recorded) == runs * RECORDED_STEPS, f"{len(recorded)} steps were recorded at the kill"
    return recorded


def _go_on(folder: Path, runs: int) -> tuple[float, float]:
    """When the new process had its imports done, and when the last run had ended."""
    with processes.begun("bench.victim", folder, 0) as successor:
        imported_at = processes.said(successor, "imported")
        with looking(folder) as look:
            _wait_until(lambda: look(CLOSED) == [(runs,)])
            ((done_ms,),) = look("select max(closed_at) from runs")
        processes.end(successor)
    return imported_at, done_ms / 1000


def _wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"nothing came of it in {PATIENCE_SECONDS} s")
        time.sleep(0.02)


def _effects(folder: Path) -> list[Effect]:
    lines = (line.split() for line in (folder / EFFECTS).read_text().splitlines())
    return [(float(at), int(number), step) for at, number, step in lines]


def _recorded(folder: Path) -> set[Step]:
    found = rows(folder, RECORDED) if server_of(folder) else _found_in_copy(folder)
    return {(int(id.removeprefix("order-")), place) for id, place in found}


def _found_in_copy(folder: Path) -> list[tuple[str, str]]:
    copy = folder / "copy"
    copy.mkdir()
    for name in (DATABASE, f"{DATABASE}-wal"):
        shutil.copy(folder / name, copy / name)
    with closing(sqlite3.connect(copy / DATABASE)) as db:
        return db.execute(RECORDED).fetchall()


def _check_results(folder: Path, runs: int) -> None:
    found = dict(rows(folder, "select workflow_id, outcome from runs"))
    expected = {f"order-{n}": f"[{n + 1},{n + 1},{n + 1},{n + 1}]" for n in range(runs)}
    assert found == expected, "a run has another result than its code computes"
