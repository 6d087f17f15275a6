"""Whether the files beside a database are fit: their permissions, the write lock, locks that were left behind.

In:   the path of a SQLite file, and the workers in it.
Out:  findings. Locks are looked at, and held for no longer than it takes to see that nobody has them.
"""

import os
import stat
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from perdure.clock import elapsed
from perdure.diagnostics.findings import Finding, ok, trouble, warning
from perdure.stores.health import WorkerSeen
from perdure.stores.sqlite.checks.health import log_of, shared_memory_of
from perdure.stores.sqlite.files import locks_of
from perdure.stores.sqlite.locks import is_held
from perdure.views.words import counted, visible

# A lock that is never seen free in this many seconds is held by a process that should not.
LOCK_PATIENCE = 1.0
LOOK_EVERY = 0.02
LOCKS = Path("/proc/locks")
# In the shared memory of a write-ahead log, this byte is locked by the process that writes.
WRITERS_BYTE = "120"
WHOLE_FILE = "0"


def check_permissions(path: Path) -> Finding:
    """Whether this user can use all the files, and not everybody else can change them."""
    files = [each for each in (path, log_of(path), shared_memory_of(path), locks_of(path)) if each.exists()]
    files += list(locks_of(path).iterdir()) if os.access(locks_of(path), os.R_OK | os.X_OK) else []
    closed = [each.name for each in files if not os.access(each, os.R_OK | os.W_OK)]
    if closed:
        return trouble(
            "permissions", f"this user cannot use {_few(closed)}", "run as the user who owns them, or change that"
        )
    opened = [each.name for each in files if _can_be_written_by_all(each)]
    if opened:
        return warning("permissions", f"everybody can write to {_few(opened)}", "take that away: chmod o-w")
    return ok("permissions", f"this user can use {counted(len(files), 'file')}")


def _can_be_written_by_all(path: Path) -> bool:
    try:
        return bool(path.stat().st_mode & stat.S_IWOTH)
    except FileNotFoundError:
        return False


def _few(names: list[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")  # noqa: PLR2004 - a few


def check_locks(path: Path, workers: tuple[WorkerSeen, ...]) -> Iterator[Finding]:
    """Whether the database can be written to, and whose locks were left behind."""
    folder = locks_of(path)
    if not folder.is_dir():
        yield ok("locks", "nobody has opened the database here yet")
        return
    if not os.access(folder, os.W_OK | os.X_OK):
        yield trouble("locks", f"the folder {folder} cannot be written", "make it writable for this user")
        return
    yield _check_write_lock(path, folder / "write")
    left = [each for each in _locks_of_workers(folder) if each.name not in _ids(workers) and is_held(each) is False]
    if left:
        yield warning(
            "lock files",
            f"{counted(len(left), 'lock')} left behind by workers: {_few([each.name for each in left])}",
            "they do no harm; remove the files",
        )


def _locks_of_workers(folder: Path) -> list[Path]:
    return [each for each in folder.iterdir() if each.name != "write"]


def _ids(workers: tuple[WorkerSeen, ...]) -> set[str]:
    return {worker.worker_id for worker in workers}


def _check_write_lock(path: Path, lock: Path) -> Finding:
    if not _comes_free(lambda: is_held(lock) is not True):
        return warning(
            "locks",
            f"{_name(holder_of(lock, WHOLE_FILE))} has held the write lock for {LOCK_PATIENCE:g} s at least",
            "nothing can be written until it lets go; look whether it hangs, and end it",
        )
    memory = shared_memory_of(path)
    if not _comes_free(lambda: holder_of(memory, WRITERS_BYTE) is None):
        return warning(
            "locks",
            f"{_name(holder_of(memory, WRITERS_BYTE))} has been writing for {LOCK_PATIENCE:g} s at least",
            "some program has a transaction open; let it commit, or end it",
        )
    return ok("locks", f"{lock.parent}, the write lock can be had")


def _comes_free(is_free: Callable[[], bool]) -> bool:
    until, pause = elapsed() + LOCK_PATIENCE, threading.Event()
    while not is_free():
        if elapsed() > until:
            return False
        pause.wait(LOOK_EVERY)
    return True


def holder_of(path: Path, first: str) -> int | None:
    """The process that holds a lock for writing on this file from this byte on, where the machine can tell."""
    try:
        inode = str(path.stat().st_ino)
        lines = LOCKS.read_text().splitlines()
    except OSError:
        return None
    for words in map(str.split, lines):
        # Number, family, advisory, kind, process, device:inode, first byte, last byte; some wait behind an arrow.
        if "->" not in words and "WRITE" in words and words[-3].endswith(f":{inode}") and words[-2] == first:
            return int(words[-4])
    return None


def _name(pid: int | None) -> str:
    if pid is None or pid <= 0:
        return "somebody"
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return f"process {pid}"
    return f"process {pid} ({visible(' '.join(words).strip())[:60]})"
