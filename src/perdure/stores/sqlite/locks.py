"""Locks between processes on one machine: files in a folder beside the database.

`flock` queues fairly, where SQLite's own busy handler starves the second process,
and the kernel frees it the moment a process dies. A forked child would inherit it,
so every lock is closed in children.
"""

import contextlib
import fcntl
import os
import struct
import weakref
from pathlib import Path
from typing import NamedTuple


class FileLock:
    """An exclusive lock on a file."""

    def __init__(self, path: Path, rights: int = 0o600) -> None:
        self.path = path
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, rights)
        if rights != 0o600:  # noqa: PLR2004 - shared with others, whatever this process masks
            with contextlib.suppress(PermissionError):
                os.fchmod(self._fd, rights)
        _open_locks.add(self)

    def acquire(self, *, wait: bool) -> bool:
        """Take the lock; without waiting, False when somebody else has it."""
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def release(self) -> None:
        """Give the lock up; closed meanwhile, it is given up already."""
        if self._fd >= 0:
            fcntl.flock(self._fd, fcntl.LOCK_UN)

    def close(self, *, remove: bool = False) -> None:
        if self._fd < 0:
            return
        if remove:
            with contextlib.suppress(FileNotFoundError):
                self.path.unlink()
        os.close(self._fd)
        self._fd = -1

    def __del__(self) -> None:
        self.close()


class Presence:
    """A reader's lock on a SQLite file that lasts until it is given up.

    SQLite's own locks on the file go, for the whole process, as soon as anybody in it
    closes the file, be it after a mere `open(path).read()`. Another process that closes
    the database then takes itself for the last one and deletes the log we write to.
    A lock of an open file description stays, and keeps that process from doing so.
    """

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        if hasattr(fcntl, "F_OFD_SETLK"):
            fcntl.fcntl(self._fd, fcntl.F_OFD_SETLK, _shared_bytes(fcntl.F_RDLCK))
        _open_locks.add(self)

    def release(self) -> None:
        """Give the lock up, but keep the file open until SQLite has closed it."""
        if hasattr(fcntl, "F_OFD_SETLK"):
            fcntl.fcntl(self._fd, fcntl.F_OFD_SETLK, _shared_bytes(fcntl.F_UNLCK))

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __del__(self) -> None:
        self.close()


def _shared_bytes(kind: int) -> bytes:
    """A `struct flock` for what SQLite locks while it reads: 510 bytes from 2**30 + 2 on."""
    return struct.pack("hhqqi4x", kind, os.SEEK_SET, 0x40000002, 510, 0)


_open_locks: "weakref.WeakSet[FileLock | Presence]" = weakref.WeakSet()


def _close_in_child() -> None:
    for lock in list(_open_locks):
        lock.close()


os.register_at_fork(after_in_child=_close_in_child)


def is_held(path: Path) -> bool | None:
    """Whether a living process holds the lock; None when the file is not there to tell."""
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False


class Holder(NamedTuple):
    """A process that holds a lock, and whether it was stopped by a signal."""

    pid: int
    is_stopped: bool


def holder_of(path: Path) -> Holder | None:
    """Who holds the lock, where the system tells."""
    try:
        found = path.stat()
        lines = Path("/proc/locks").read_text().splitlines()
    except OSError:
        return None
    file = f"{os.major(found.st_dev):02x}:{os.minor(found.st_dev):02x}:{found.st_ino}"
    # "1: FLOCK ADVISORY WRITE 4711 fe:00:1234 0 EOF"; those that wait for it have an arrow behind the number.
    for _, kind, _, _, pid, where, *_ in (line.split() for line in lines if "->" not in line):
        if kind == "FLOCK" and where == file and int(pid) > 0:
            return Holder(int(pid), _is_stopped(int(pid)))
    return None


def _is_stopped(pid: int) -> bool:
    try:
        # The state stands behind the name, which may hold anything.
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in {"T", "t"}
    except (OSError, IndexError):
        return False
