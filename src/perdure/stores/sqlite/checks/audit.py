"""The audit of a SQLite file.

In:   the path of a file, at rest or with workers at work on it.
Out:  what was looked at, and every violation found; nothing is created, migrated or locked.

All questions are asked within one read transaction, so they see one moment.
"""

import sqlite3
from collections.abc import Iterator
from pathlib import Path

from perdure.errors import NewerSchema, NotADatabase, StoreError
from perdure.stores.audit import Audit, Row, audited
from perdure.stores.differences import Difference
from perdure.stores.queries import migrations
from perdure.stores.sqlite.checks.health import log_of, looking_at
from perdure.stores.sqlite.schema import differences, version_of


def audit_of(path: Path) -> Audit:
    """The audit of a file; NotADatabase, NewerSchema or StoreUnavailable when it cannot be read as ours."""
    # Without a log nobody has the file open, and SQLite can be kept from making one just to read.
    if not log_of(path).exists():
        before = _stamp(path)
        try:
            found = _audit_of(path, is_at_rest=True)
        except StoreError:
            if before == _stamp(path):
                raise
        else:
            if before == _stamp(path):
                return found
        # Another process has begun to use it meanwhile: what was seen was not one moment.
    return _audit_of(path, is_at_rest=False)


def _stamp(path: Path) -> tuple[object, ...]:
    """Differs when the file was used in between."""
    seen = path.stat()
    return seen.st_ino, seen.st_size, seen.st_mtime_ns, log_of(path).exists()


def _audit_of(path: Path, *, is_at_rest: bool) -> Audit:
    with looking_at(path, is_at_rest=is_at_rest) as db:
        db.isolation_level = None
        db.execute("begin")
        version = version_of(db)
        _refuse(path, db, version)
        told = "the table perdure_schema does not say one version"
        apart = differences(db, version) if version else [Difference(told, hinders=True)]
        return audited(db, _damage(db), apart)


def _refuse(path: Path, db: sqlite3.Connection, version: int) -> None:
    url, known = f"sqlite:///{path}", len(migrations("sqlite"))
    if version > known:
        raise NewerSchema(url, version, known)
    if 0 < version < known and not differences(db, version):
        raise StoreError(
            url,
            f"the database has schema {version}, the audit is for {known}; the next worker that opens it makes it so",
        )
    if not version and "runs" not in {name for (name,) in db.execute("select name from sqlite_schema")}:
        raise NotADatabase(url, "it is a database without runs of Perdure")


def _damage(db: sqlite3.Connection) -> Iterator[Row]:
    for (found,) in db.execute("pragma integrity_check(10)"):
        if found != "ok":
            yield None, None, " ".join(str(found).split())
