"""The schema of a SQLite file, brought up to date under its write lock.

In:   a file and a connection to it.
Out:  tables of the version this Perdure knows; NewerSchema or NotADatabase where they are not ours to change.
"""

import asyncio
import contextlib
import sqlite3

from perdure.clock import elapsed
from perdure.errors import NewerSchema, NotADatabase, StoreUnavailable
from perdure.stores.queries import migrations
from perdure.stores.sqlite.connection import SqliteFile
from perdure.stores.sqlite.files import refuse_unfit
from perdure.stores.sqlite.schema import foreign_in, version_of
from perdure.stores.sqlite.writer import HELD_UP_SECONDS, blame

LOOK_SECONDS = 0.02


def refuse_foreign_file(file: SqliteFile) -> None:
    """NotADatabase or NewerSchema, before anything is written to the file."""
    assert file.path is not None
    refuse_unfit(file.url, file.path)
    if not file.path.exists():
        return
    # Through SQLite only: closing the file would take away the locks that other connections
    # of this process have on it.
    try:
        db = sqlite3.connect(f"{file.path.absolute().as_uri()}?mode=ro", uri=True)
    except sqlite3.Error as error:
        raise file.unavailable(error) from None
    with contextlib.closing(db):
        schema_version(file, db)


async def migrate(file: SqliteFile, db: sqlite3.Connection) -> None:
    """Bring the schema up to date under the write lock; refuse what is not ours or newer than we are."""
    steps = migrations("sqlite")
    if schema_version(file, db) == len(steps):
        return
    await _acquired(file)
    try:
        missing = "\n".join(steps[schema_version(file, db) :])
        # One transaction, one sync: a new file needs all of them.
        script = f"begin immediate;\n{missing}\nupdate perdure_schema set version = {len(steps)};\ncommit;"
        try:
            db.executescript(script)
        except sqlite3.OperationalError as error:
            raise StoreUnavailable(file.url, f"{error}; its tables could not be made, try again") from None
    finally:
        if file.write_lock is not None:
            file.write_lock.release()


async def _acquired(file: SqliteFile) -> None:
    """Take the write lock without keeping the loop from turning."""
    began = elapsed()
    while file.write_lock is not None and not file.write_lock.acquire(wait=False):
        if elapsed() - began > HELD_UP_SECONDS:
            raise StoreUnavailable(file.url, blame(file.write_lock))
        await asyncio.sleep(LOOK_SECONDS)


def schema_version(file: SqliteFile, db: sqlite3.Connection) -> int:
    """The schema the file has, 0 for none; refuses one that is not ours or newer than we are."""
    try:
        found = version_of(db)
        foreign = None if found else foreign_in(db)
    except sqlite3.OperationalError as error:
        raise file.unavailable(error) from None
    except sqlite3.DatabaseError as error:
        if error.sqlite_errorcode == sqlite3.SQLITE_NOTADB:
            trouble = "the file is not a SQLite database; name another one, nothing was changed"
            raise NotADatabase(file.url, trouble) from None
        raise NotADatabase(file.url, f"the file cannot be used as a database: {error}; nothing was changed") from None
    known = len(migrations("sqlite"))
    if found > known:
        raise NewerSchema(file.url, found, known)
    if foreign is not None:
        raise NotADatabase(file.url, f"{foreign.what}; {foreign.remedy}; nothing was changed")
    return found
