"""New databases as copies of one that was made before: for tests, most of which take less time than making tables.

In:   a path.
Out:  a database there as opening it would have made it.
"""

import sqlite3
import tempfile
from contextlib import closing
from functools import cache
from pathlib import Path

from perdure.stores.sqlite.schema import script_from


def make_missing(name: str) -> None:
    """Make a database that nothing is in, unless the file is there; its secret is its own."""
    path = Path(name)
    if not path.exists() and path.parent.exists():
        path.touch(mode=0o600)
        path.write_bytes(_template())
        with closing(sqlite3.connect(path)) as db, db:
            db.execute("update perdure_schema set secret = randomblob(32)")


@cache
def _template() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "template.db"
        with closing(sqlite3.connect(path, isolation_level=None)) as db:
            db.execute("pragma journal_mode = wal")
            db.executescript(script_from(0)[2])
        return path.read_bytes()
