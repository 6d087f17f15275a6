"""The files of a SQLite database: what can be one, and who may use those that we make.

In:   the path of a database.
Out:  refusals that say what is wrong with it; files for nobody but their owner, unless the database is shared.
Never opens a file that is there: closing it would take away the locks that this process has on it.
"""

import errno
import os
import re
import stat
from pathlib import Path

from perdure.errors import BadOption, NotADatabase, StoreUnavailable

PRIVATE_FILE, PRIVATE_FOLDER = 0o600, 0o700
# So many bytes a name may have, and a path that SQLite takes, with the longest of what it puts behind them.
LONGEST_NAME = 255 - len("-journal")
LONGEST_PATH = 512 - len("-journal")

_UNFIT = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def checked_name(path: str) -> str:
    """The path itself, if people can read and type it; else BadOption."""
    if found := _UNFIT.search(path):
        what = "a NUL character" if found[0] == "\0" else "a line break or another control character"
        raise BadOption(f"the file {path!r} of the URL has {what} in its name; name another file")
    try:
        os.fsencode(path)
    except UnicodeEncodeError:
        raise BadOption(f"the file {path!r} of the URL holds half a surrogate pair; name another file") from None
    return path


def strange_kind(path: Path) -> str | None:
    """What is at a path where a file is wanted: `a folder`, `a named pipe`; None for a file, or nothing."""
    try:
        found = path.stat()
    except OSError:
        return None
    return None if stat.S_ISREG(found.st_mode) else _KINDS.get(stat.S_IFMT(found.st_mode), "no file")


def _leads_in_a_circle(path: Path) -> bool:
    try:
        path.stat()
    except OSError as error:
        return error.errno == errno.ELOOP
    return False


def refuse_unfit(url: str, path: Path) -> None:
    """NotADatabase when there can be no database at this path, StoreUnavailable when it is not for this user."""
    if (kind := strange_kind(path)) is not None:
        raise NotADatabase(url, f"this is {kind}; name a file")
    if _leads_in_a_circle(path):
        raise NotADatabase(url, "these are links that lead in a circle; name a file")
    size = len(os.fsencode(path.name))
    if size > LONGEST_NAME:
        trouble = f"the name has {size} bytes; use up to {LONGEST_NAME}, for the files beside it get longer ones"
        raise NotADatabase(url, trouble)
    size = len(os.fsencode(path.absolute()))
    if size > LONGEST_PATH:
        raise NotADatabase(url, f"the path has {size} bytes, SQLite takes {LONGEST_PATH}; use a shorter one")
    if not path.parent.is_dir():
        raise NotADatabase(url, f"the folder {str(path.parent)!r} does not exist; create it first")
    if path.exists() and not os.access(path, os.R_OK):
        raise StoreUnavailable(
            url, "this user may not read the file; run as its owner, or share it: see docs/operating.md"
        )


def create_private(url: str, path: Path) -> None:
    """Make the file, for nobody but its owner; SQLite gives its companions the same rights. One that is there stays."""
    try:
        # Where a link leads to a file that is not there yet, that is the one to be made.
        made = os.open(path.resolve(), os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, PRIVATE_FILE)
    except FileExistsError:
        return
    except OSError as error:
        raise StoreUnavailable(url, f"the file cannot be made: {error.strerror}") from None
    os.close(made)


def beside(path: Path, ending: str) -> Path:
    """What belongs to a file, by its ending: beside the file itself, also where a link leads to it, as in SQLite."""
    real = path.resolve()
    return real.with_name(f"{real.name}{ending}")


def locks_of(path: Path) -> Path:
    """The folder with the locks of a file."""
    return beside(path, ".locks")


def make_lock_folder(folder: Path, database: Path) -> None:
    """Make the folder for locks, for those who may write to the database. One that is there stays as it is."""
    try:
        folder.mkdir(mode=PRIVATE_FOLDER)
    except FileExistsError:
        if not folder.is_dir():
            raise
        return
    if shared := _shared_with(database):
        # Beside what it has: where the folder around it gives its group to all that is made there, so shall this one.
        folder.chmod(stat.S_IMODE(folder.stat().st_mode) | shared | shared << 1 | shared >> 1)


def lock_rights(database: Path) -> int:
    """Who may take a lock: those who may write to the database."""
    shared = _shared_with(database)
    return PRIVATE_FILE | shared | shared << 1


def _shared_with(database: Path) -> int:
    """Who may write to the database besides its owner, as the bits for that; to read it needs no lock."""
    try:
        return database.stat().st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    except OSError:
        return 0
