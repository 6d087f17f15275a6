"""A shell for tests: types commands in a folder, piped or at a terminal, and sees what comes back."""

import contextlib
import json
import os
import pty
import re
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple, Self

# What has not happened by then never will, however busy the machine is.
PATIENCE = 120.0
ESCAPES = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")


class Answer(NamedTuple):
    """What a command left behind."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The JSON it printed; it went well and complained of nothing."""
        assert (self.code, self.err) == (0, "")
        return json.loads(self.out)


class Zygote:
    """The process that forks commands."""

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        script = str(Path(__file__).with_name("zygote.py"))
        self._process = subprocess.Popen(
            [sys.executable, script, str(theirs.fileno())], pass_fds=[theirs.fileno()], stderr=subprocess.DEVNULL
        )
        theirs.close()
        self._begun: list[Command] = []

    def fork(self, words: tuple[str, ...], folder: Path, environment: dict[str, str], files: list[int]) -> "Command":
        """Begin a command with these files as its streams."""
        reader, writer = os.pipe()
        request = {"words": words, "folder": str(folder), "environment": environment}
        socket.send_fds(self._socket, [json.dumps(request).encode()], [*files, writer])
        os.close(writer)
        self._begun.append(Command(os.fdopen(reader)))
        return self._begun[-1]

    def close(self) -> None:
        """End whatever a failed test has left behind, and the process itself."""
        for command in self._begun:
            command.__exit__()
        self._socket.close()
        self._process.wait(PATIENCE)


class Command:
    """A command under way."""

    def __init__(self, report: Any) -> None:
        self._report = report
        self.pid = int(report.readline())
        self._code: int | None = None

    def wait(self) -> int:
        """Its exit code; negative for the signal that ended it."""
        if self._code is None:
            with self._report:
                self._code = int(self._report.readline())
        return self._code

    def send(self, signal_number: int) -> None:
        os.kill(self.pid, signal_number)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._code is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
            self.wait()


class Shell:
    """Somebody who types commands in a folder."""

    def __init__(self, zygote: Zygote, folder: Path) -> None:
        self._zygote = zygote
        self.folder = folder

    def __call__(self, *words: str, input: str = "", **variables: str) -> Answer:
        """Run a command, its output piped."""
        given, out, err = (os.memfd_create(name) for name in ("in", "out", "err"))
        os.write(given, input.encode())
        os.lseek(given, 0, os.SEEK_SET)
        with self.begin(*words, files=[given, out, err], **variables) as command:
            code = command.wait()
        said = [_text(file) for file in (out, err)]
        for file in (given, out, err):
            os.close(file)
        return Answer(code, *said)

    def begin(self, *words: str, files: list[int], **variables: str) -> Command:
        """Begin a command whose streams are these files."""
        return self._zygote.fork(words, self.folder, environment(**variables), files)

    def at_terminal(self, *words: str, typed: str = "", **variables: str) -> tuple[int, str]:
        """The exit code and what somebody at a terminal sees, without colours; `typed` is what they answer."""
        code, seen = self.in_colour(*words, typed=typed, **variables)
        return code, ESCAPES.sub("", seen)

    def in_colour(self, *words: str, typed: str = "", **variables: str) -> tuple[int, str]:
        """The exit code and all that goes to the terminal."""
        ours, theirs = pty.openpty()
        if typed:
            # It waits in the terminal until somebody asks.
            os.write(ours, typed.encode())
        with self.begin(*words, files=[theirs] * 3, **variables) as command:
            os.close(theirs)
            seen = _all_of(ours)
            return command.wait(), seen.decode(errors="replace").replace("\r", "")

    @contextlib.contextmanager
    def at_work(self, *modules: str, **variables: str) -> Iterator[Command]:
        """A worker of these modules, or of shop.py, that is ready; killed in the end."""
        reader, writer = os.pipe()
        words = ["worker", *(modules or ["shop"]), "--queue", "default", "--queue", "slow"]
        with os.fdopen(reader) as said, self.begin(*words, files=[reader, writer, writer], **variables) as worker:
            os.close(writer)
            # Before that it may tell of held runs.
            assert any(" is ready on " in line for line in iter(said.readline, ""))
            yield worker

    def python(self, program: str) -> str:
        """Run a program in the folder, where it does well; what it prints."""
        words = [sys.executable, "-c", program]
        done = subprocess.run(words, cwd=self.folder, env=environment(), capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout

    def waits_for_approval(self, id: str) -> None:
        """A run of `checkout` that stands on disk, waiting for its signal."""
        self.run_until("TimerFired", "run", "shop:checkout", f'["{id}"]', "--id", id)

    def run_until(self, kind: str, *words: str, count: int = 1) -> None:
        """Run for a moment, and again on a slow machine, until so many events of this kind are on disk."""

        def is_there() -> bool:
            done = self(*words, "--wait", "0.2")
            assert done.code == 2, done.err
            return count_events(self.folder, kind) == count

        until(is_there)


def environment(**more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PERDURE_")}
    return kept | {"COLUMNS": "140", "TERM": "xterm-256color", "PYTHONUNBUFFERED": "1"} | more


def command(*words: str) -> list[str]:
    """The words of a process of its own."""
    return [sys.executable, "-m", "perdure.cli", *words]


def until(is_so: Callable[[], bool]) -> None:
    """Wait for a condition; fail when it takes too long."""
    deadline = time.monotonic() + PATIENCE
    while not is_so():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.02)


def count_events(folder: Path, kind: str) -> int:
    """How many events of a kind are on disk."""
    with closing(sqlite3.connect(folder / "perdure.db")) as db:
        try:
            (count,) = db.execute("select count(*) from events where kind = ?", (kind,)).fetchone()
        except sqlite3.OperationalError:  # the tables are not there yet
            return 0
        return int(count)


def _text(file: int) -> str:
    os.lseek(file, 0, os.SEEK_SET)
    with os.fdopen(os.dup(file), errors="replace") as reader:
        return reader.read()


def _all_of(terminal: int) -> bytes:
    seen = bytearray()
    try:
        while chunk := os.read(terminal, 4096):
            seen += chunk
    except OSError:  # so Linux says that the other side is closed
        pass
    finally:
        os.close(terminal)
    return bytes(seen)
