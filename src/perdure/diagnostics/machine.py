"""Whether this machine is fit: Python, SQLite, and the disk under a folder.

In:   the folder in which a database is, or will be.
Out:  findings. The disk is tried with a file of its own, which is removed again.
"""

import errno
import fcntl
import os
import shutil
import statistics
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import perdure
from perdure.clock import elapsed
from perdure.diagnostics.findings import Finding, ok, trouble, warning
from perdure.stores.sqlite.checks import health
from perdure.views.words import size_text

NEWEST_PYTHON = (3, 13)
LITTLE_SPACE, TOO_LITTLE_SPACE = 100 * 2**20, 50 * 2**20
SLOW_SYNC_MS = 20.0
SYNCS = 5
# So much a few commits take.
TRIAL_BYTES = 64 * 2**10
NO_ROOM = {errno.ENOSPC, errno.EDQUOT}
# The write-ahead log is shared memory, which these do not share between machines.
NETWORKED = {"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "ceph", "fuse.sshfs", "fuse.s3fs"}
FLEETING = {"tmpfs", "ramfs"}
MOUNTS = Path("/proc/self/mounts")


def check_python() -> Finding:
    found = f"perdure {perdure.__version__} on Python {sys.version.split()[0]}"
    if sys.version_info[:2] > NEWEST_PYTHON:
        newest = ".".join(map(str, NEWEST_PYTHON))
        return warning("python", found, f"not tested with this version; {newest} is the newest that is")
    return ok("python", found)


def check_sqlite() -> Finding:
    found = f"SQLite {health.VERSION}"
    if not health.is_new_enough():
        return trouble("sqlite", f"{found} is too old", "use a Python with SQLite 3.38 or newer")
    if not health.syncs_commits():
        return trouble("sqlite", f"{found} does not sync its commits", "use a Python with another build of SQLite")
    return ok("sqlite", f"{found}, every commit is synced (synchronous = full)")


def is_full(folder: Path) -> bool:
    """Whether nothing can be written there for want of room."""
    try:
        with tempfile.TemporaryFile(dir=folder, prefix=".perdure-doctor-", buffering=0) as file:
            file.write(bytes(TRIAL_BYTES))
    except OSError as error:
        return error.errno in NO_ROOM
    return False


def check_disk(folder: Path, database_bytes: int = 0) -> Iterator[Finding]:
    """Space, kind and speed of the disk that has a database of this size, and whether locks work there."""
    if not folder.is_dir():
        yield trouble("disk", f"the folder {folder} does not exist", "create it first")
        return
    yield _check_space(folder, database_bytes)
    yield _check_kind(folder)
    try:
        with tempfile.TemporaryFile(dir=folder, prefix=".perdure-doctor-") as file:
            yield _check_sync(file)
            yield _check_lock(file)
    except OSError as error:
        if error.errno in NO_ROOM:
            yield trouble("fsync", f"not tried: {error.strerror}", "make room; everything that waits for it goes on")
            return
        yield trouble("fsync", f"{folder} cannot be written: {error.strerror}", "make it writable for this user")


def _check_space(folder: Path, database_bytes: int) -> Finding:
    free = shutil.disk_usage(folder).free
    found = f"{size_text(free)} free in {folder}"
    if free < TOO_LITTLE_SPACE:
        return trouble("disk", found, "make room; a full disk stops every run until there is some")
    if free < LITTLE_SPACE:
        return warning("disk", found, "make room before it is full")
    if free < database_bytes:
        size = size_text(database_bytes)
        return warning("disk", f"{found}, the database has {size}", "make room; a migration or a copy needs as much")
    return ok("disk", found)


def _check_kind(folder: Path) -> Finding:
    kind = _kind_of(folder)
    if kind in NETWORKED:
        return trouble("file system", f"{kind} is shared over a network", "put the database on a disk of this machine")
    if kind in FLEETING:
        return warning("file system", f"{kind} is memory", "put the database on a disk, or a restart loses it")
    return ok("file system", kind or "of an unknown kind")


def _kind_of(folder: Path) -> str | None:
    """The type of the file system a folder is on, where the machine can tell."""
    try:
        mounts = [line.split()[1:3] for line in MOUNTS.read_text().splitlines()]
    except OSError:
        return None
    here = folder.resolve()
    around = [(len(place), kind) for place, kind in mounts if here.is_relative_to(place.replace("\\040", " "))]
    return max(around)[1] if around else None


def _check_sync(file: IO[bytes]) -> Finding:
    times = []
    for _ in range(SYNCS):
        began = elapsed()
        file.write(bytes(4096))
        file.flush()
        os.fsync(file.fileno())
        times.append((elapsed() - began) * 1000)
    found = f"fsync works and takes {statistics.median(times):.2g} ms"
    if statistics.median(times) > SLOW_SYNC_MS:
        return warning("fsync", found, "every commit takes that long; a faster disk makes Perdure faster")
    return ok("fsync", found)


def _check_lock(file: IO[bytes]) -> Finding:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return trouble("flock", f"files cannot be locked: {error.strerror}", "put the database on a local disk")
    return ok("flock", "files can be locked")
