"""Locks between processes on one machine: files in a folder beside the database.

`flock` queues fairly, where SQLite's own busy handler starves the second process,
and the kernel frees it the moment a process dies. A forked child would inherit it,
so every lock is closed in children.
"""

import contextlib
import fcntl
import os
import weakref
from pathlib import Path


class FileLock:
    """An exclusive lock on a file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        _open_locks.add(self)

    def acquire(self, *, wait: bool) -> bool:
        """Take the lock; without waiting, False when somebody else has it."""
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def release(self) -> None:
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


_open_locks: "weakref.WeakSet[FileLock]" = weakref.WeakSet()


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
