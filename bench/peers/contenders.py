"""The contenders: ours and others, each with how it is started and what it needs to be there.

In:   a scenario, a folder of its own, a size, and a Postgres server.
Out:  its numbers; or why it has none.
"""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from bench.database import Numbers, connected, forget, schema_of, settle

# Each has a virtualenv of its own in here, which `make bench-peers` makes.
HOME = Path(".peers")
SCRIPTS = Path(__file__).parent
# Beyond the seconds in which new work is begun, for opening and for what is under way.
GRACE_SECONDS = 90.0


class Skipped(Exception):
    """It cannot run here."""


class NotFinished(Exception):
    """It did not end in time, or not well."""


class Contender(msgspec.Struct, frozen=True):
    """An engine on a database."""

    name: str
    uses_postgres: bool

    def check(self) -> None:
        """Skipped when something is missing."""

    def measure(self, scenario: str, folder: Path, size: int, server: str, seconds: float) -> Numbers:
        """Its numbers, from a process of its own."""
        raise NotImplementedError


class Ours(Contender, frozen=True):
    """Perdure; it is not held to any number of seconds."""

    def measure(self, scenario: str, folder: Path, size: int, server: str, seconds: float) -> Numbers:
        settle(folder, server if self.uses_postgres else None)
        try:
            return said([sys.executable, "-m", "bench.one", scenario, folder, size], seconds)
        finally:
            forget(folder)


class Dbos(Contender, frozen=True):
    """DBOS, on a file or in a database of its own on the server."""

    def check(self) -> None:
        check_python("dbos", "dbos")

    def measure(self, scenario: str, folder: Path, size: int, server: str, seconds: float) -> Numbers:
        script = [python_of("dbos"), SCRIPTS / "dbos_script.py", scenario]
        if not self.uses_postgres:
            return said([*script, f"sqlite:///{folder / 'dbos.db'}", size, seconds], seconds)
        name = schema_of(folder)
        try:
            return said([*script, f"{server.rpartition('/')[0]}/{name}", size, seconds], seconds)
        finally:
            drop_database(server, name)


class Restate(Contender, frozen=True):
    """Restate: a server of its own, which keeps everything itself, and a service that it calls."""

    def check(self) -> None:
        if restate_server() is None:
            raise Skipped("there is no restate-server; npm install @restatedev/restate-server, or put it on the PATH")
        check_python("restate", "restate", "granian", "aiohttp")

    def measure(self, scenario: str, folder: Path, size: int, server: str, seconds: float) -> Numbers:
        script = [python_of("restate"), SCRIPTS / "restate_script.py", scenario, restate_server(), folder]
        return said([*script, size, seconds], seconds)


class Absurd(Contender, frozen=True):
    """Absurd: a worker and a client on a database of its own on the server."""

    def check(self) -> None:
        check_python("absurd", "absurd_sdk", "absurdctl")

    def measure(self, scenario: str, folder: Path, size: int, server: str, seconds: float) -> Numbers:
        name = schema_of(folder)
        with connected(server) as db:
            db.execute(f"create database {name}".encode())
        url = f"{server.rpartition('/')[0]}/{name}"
        try:
            return said([python_of("absurd"), SCRIPTS / "absurd_script.py", scenario, url, size, seconds], seconds)
        finally:
            drop_database(server, name)


CONTENDERS: tuple[Contender, ...] = (
    Ours("Perdure, SQLite", uses_postgres=False),
    Ours("Perdure, Postgres", uses_postgres=True),
    Dbos("DBOS, SQLite", uses_postgres=False),
    Dbos("DBOS, Postgres", uses_postgres=True),
    Restate("Restate", uses_postgres=False),
    Absurd("Absurd, Postgres", uses_postgres=True),
)


def python_of(peer: str) -> Path:
    return (HOME / peer / "bin" / "python").absolute()


def check_python(peer: str, *modules: str) -> None:
    """Skipped when a peer has no Python with these modules."""
    command = [str(python_of(peer)), "-c", f"import {', '.join(modules)}"]
    if not python_of(peer).exists() or subprocess.run(command, check=False, capture_output=True).returncode != 0:
        raise Skipped(f"{python_of(peer).parents[1]} lacks {' or '.join(modules)}; `make bench-peers` installs it")


def restate_server() -> Path | None:
    """From the environment, from npm, or from the PATH."""
    found = os.environ.get("RESTATE_SERVER") or shutil.which("restate-server")
    inside = HOME / "npm" / "node_modules" / "@restatedev"
    return Path(found) if found else next(iter(inside.absolute().glob("restate-server-*/bin/restate-server")), None)


def drop_database(server: str, name: str) -> None:
    with connected(server) as db:
        db.execute(f"drop database if exists {name} with (force)".encode())


def said(command: Sequence[object], seconds: float) -> Numbers:
    """What a program says in its last line; NotFinished when it does not end well, or not in time."""
    patience = seconds + GRACE_SECONDS
    words = [str(word) for word in command]
    with subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        try:
            told, trouble = process.communicate(timeout=patience)
        except subprocess.TimeoutExpired:
            raise NotFinished(f"not finished in {patience:g} s") from None
        finally:
            _end_all(process.pid)
    if process.returncode != 0 or not told.strip():
        raise NotFinished((trouble.strip().splitlines() or [f"exit status {process.returncode}"])[-1][:200])
    return msgspec.json.decode(told.strip().splitlines()[-1], type=Numbers)


def _end_all(group: int) -> None:
    """Whatever a program has started goes with it."""
    with suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)
