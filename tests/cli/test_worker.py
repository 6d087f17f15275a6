"""`perdure worker`: works the queues until it is told to stop, and restarts when its code changes."""

import os
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.shell import Shell, command, count_events, environment, until

STARTS = """
import asyncio, shop
from perdure import Perdure

async def main():
    async with Perdure("sqlite:///perdure.db", worker=False) as app:
        await app.start(shop.{})

asyncio.run(main())
"""


class Worker:
    """A worker of shop.py in a process of its own."""

    def __init__(self, folder: Path, *words: str) -> None:
        self._process = subprocess.Popen(
            command("worker", *words),
            cwd=folder,
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert self._process.stdout is not None
        self.says = self._process.stdout.readline
        self.rest = self._process.stdout.read
        self.pid = self._process.pid
        self.wait = self._process.wait
        self.send = self._process.send_signal

    def end(self) -> None:
        self._process.kill()
        self._process.communicate()


@pytest.fixture
def worker(folder: Path) -> Iterator[Worker]:
    """A worker that is ready; killed at the end, if it is still there."""
    worker = Worker(folder, "shop.py")
    assert worker.says() == f"worker {worker.pid} is ready on {folder / 'perdure.db'}; Ctrl-C stops it\n"
    assert re.match(r"  workflows   .*\bcheckout, counts_down, .*drags, greet", worker.says())
    assert re.match(r"  activities  .*drag, .*stumble, tidy", worker.says())
    assert worker.says() == "  queues      default\n"
    yield worker
    worker.end()


@pytest.fixture
def reloader(folder: Path) -> Iterator[Worker]:
    """A worker that restarts when its code changes, and is ready."""
    worker = Worker(folder, "trip", "--reload")
    assert " is ready on " in worker.says()
    assert worker.says() == "  workflows   trip\n"
    assert worker.says() == "  activities  book_flight, book_train\n"
    assert worker.says() == "  queues      default\n"
    yield worker
    worker.end()


def start_drags(shell: Shell) -> None:
    """Start a run of `drags`, and wait until a worker is in the middle of its activity."""
    program = STARTS.format("drags")
    assert shell.python(program) == ""
    trace = shell.folder / "trace.log"
    until(lambda: trace.exists() and "drag begins" in trace.read_text())


def test_what_is_under_way_is_finished_when_a_worker_is_told_to_stop(shell: Shell, worker: Worker) -> None:
    """A deploy sends SIGTERM; it must not make activities run twice."""
    start_drags(shell)

    worker.send(signal.SIGTERM)
    assert worker.says().startswith("stopping: activities under way may finish, for up to 10 s; ")
    (shell.folder / "let-go").touch()

    assert worker.wait(20) == 0
    assert worker.rest() == "stopped\n"
    assert (shell.folder / "trace.log").read_text() == "drag begins\ndrag ends\n"
    assert count_events(shell.folder, "ActivityCompleted") == 1


def test_a_second_signal_stops_a_worker_at_once(shell: Shell, worker: Worker) -> None:
    start_drags(shell)
    worker.send(signal.SIGTERM)
    assert worker.says().startswith("stopping")
    worker.send(signal.SIGTERM)
    assert worker.wait(5) == -signal.SIGTERM


# Queues


def test_a_module_of_activities_on_a_queue_is_worked_without_any_workflow(shell: Shell) -> None:
    """What is deployed on the machine with the right hardware has nothing else; the callers run elsewhere."""
    worker = Worker(shell.folder, "gpu", "--queue", "gpu")
    try:
        assert " is ready on " in worker.says()
        assert worker.says() == "  workflows   none\n"
        assert worker.says() == "  activities  render\n"
        assert worker.says() == "  queues      gpu\n"
        assert shell("run", "film:makes_film", '["dawn"]', "--wait", "20").out == '"rendered dawn"\n'
    finally:
        worker.end()


def test_a_worker_says_which_activities_it_leaves_to_others(shell: Shell) -> None:
    """A module brings along what it calls; who reads that this worker has it waits for it in vain."""
    (shell.folder / "studio.py").write_text("from film import makes_film\nfrom trip import trip\n")
    for words, told in {
        ("studio",): "book_flight, book_train; left to others: render (queue gpu)",
        ("studio", "--queue", "default", "--queue", "gpu"): "book_flight, book_train, render",
        ("film",): "none; left to others: render (queue gpu)",
    }.items():
        worker = Worker(shell.folder, *words)
        try:
            assert [worker.says() for _ in range(3)][2] == f"  activities  {told}\n"
        finally:
            worker.end()


def test_a_worker_that_nothing_can_come_to_says_so(shell: Shell) -> None:
    """Without a word it would look ready, and wait for ever."""
    worker = Worker(shell.folder, "gpu")
    try:
        for _ in range(4):
            worker.says()
        assert "go to other queues than default; work those with --queue gpu" in worker.says()
    finally:
        worker.end()


# Reloading


def test_a_change_restarts_the_worker_with_the_new_code(shell: Shell, reloader: Worker) -> None:
    """Same process, one line; it takes new runs with what was saved."""
    path = shell.folder / "trip.py"
    path.write_text(path.read_text() + "\n@workflow\nasync def hike() -> str:\n    return 'up'\n")
    assert reloader.says() == f"worker {reloader.pid} restarted, trip.py changed: 2 workflows, 2 activities\n"

    # Of the same length, and perhaps in the same second: Python alone would take the old one from its cache.
    path.write_text(path.read_text().replace("'up'", "'us'"))
    assert reloader.says() == f"worker {reloader.pid} restarted, trip.py changed: 2 workflows, 2 activities\n"

    reloader.send(signal.SIGTERM)
    assert reloader.wait(20) == 0
    assert reloader.rest().endswith("\nstopped\n")


def test_a_broken_file_is_told_and_the_next_save_is_awaited(shell: Shell, reloader: Worker) -> None:
    path = shell.folder / "trip.py"
    good = path.read_text()
    path.write_text("def (:\n" + good)
    said = reloader.says()
    assert re.match(r"error: importing trip failed: SyntaxError: .*trip\.py:1\); waiting for the next save\n", said)

    path.write_text("import missing_part\n" + good)
    assert "No module named 'missing_part'" in reloader.says()

    (shell.folder / "missing_part.py").write_text("")
    assert reloader.says().startswith(f"worker {reloader.pid} restarted, missing_part.py changed: 1 workflow,")

    (shell.folder / "missing_part.py").write_text("1 / 0")
    assert "ZeroDivisionError: division by zero (at " in reloader.says()

    reloader.send(signal.SIGINT)
    assert reloader.wait(20) == 0
    assert reloader.rest() == "stopped\n"


def test_activities_under_way_are_finished_before_a_restart(shell: Shell) -> None:
    """Saving a file must not make activities run twice."""
    worker = Worker(shell.folder, "shop", "--reload")
    try:
        for _ in range(4):
            worker.says()
        start_drags(shell)
        (shell.folder / "shop.py").write_text((shell.folder / "shop.py").read_text() + "\n")
        assert worker.says() == "shop.py changed; restarting when activities under way have finished\n"
        (shell.folder / "let-go").touch()
        assert "restarted, shop.py changed: " in worker.says()
        assert (shell.folder / "trace.log").read_text() == "drag begins\ndrag ends\n"
        until(lambda: shell("list").json[0]["status"] == "COMPLETED")
        os.kill(worker.pid, signal.SIGINT)
        assert worker.wait(20) == 0
        assert worker.rest().endswith("stopped\n")
    finally:
        worker.end()
