"""The health of a SQLite file, seen without touching it.

In:   the path of a file.
Out:  its settings, its schema, its workers and whether they live, how many runs wait.
Opening a store creates, migrates and locks; a look must do none of that.
"""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from perdure.errors import NotADatabase, StoreUnavailable
from perdure.stores.health import Contents, Due, DutySeen, ScheduleSeen, WorkerSeen, schedule_seen
from perdure.stores.queries import for_sqlite, migrations, named
from perdure.stores.sqlite.files import beside, locks_of
from perdure.stores.sqlite.locks import is_held
from perdure.stores.sqlite.schema import Foreign, differences, foreign_in, version_of
from perdure.stores.sqlite.store import OLDEST_SQLITE

HEADER = b"SQLite format 3\x00"
# Byte 18 of a file is 2 when its changes go through a write-ahead log.
WRITE_VERSION, WAL = 18, 2
FULL = 2
VACUUM_FULL = 1
VERSION = sqlite3.sqlite_version
WITHOUT_RESET_RACE = (3, 51, 3)
# A damaged file is found by reading all of it; beyond this many bytes nobody wants to wait for that.
LARGEST_CHECKED = 256 * 2**20


class Health(Contents, frozen=True):
    """How a file is doing; schema 0 means that it has no tables of ours."""

    bytes: int
    log_bytes: int
    is_wal: bool
    schema: int
    known_schema: int
    # Where it is not what its version should be, and the settings that are kept in it.
    differences: tuple[str, ...] = ()
    page_bytes: int = 0
    moves_pages: bool = False
    damage: str | None = None
    # Why our tables will not be made in it.
    foreign: Foreign | None = None


def health_of(path: Path, now: int) -> Health:
    """A look at the file at engine time `now`; NotADatabase or StoreUnavailable when it cannot be read as one."""
    # Without a log nobody has the file open, and SQLite can be kept from making one just to read.
    is_at_rest = not log_of(path).exists()
    try:
        return _health_of(path, now, is_at_rest=is_at_rest)
    except (NotADatabase, StoreUnavailable):
        if not (is_at_rest and log_of(path).exists()):
            raise
        # Somebody has begun to use it in the middle of the look.
        return _health_of(path, now, is_at_rest=False)


def _health_of(path: Path, now: int, *, is_at_rest: bool) -> Health:
    size, known = path.stat().st_size, len(migrations("sqlite"))
    # Before the connection: closing the plain file would take away the locks that SQLite has on it.
    is_wal = _is_wal(path)
    with looking_at(path, is_at_rest=is_at_rest) as db:
        schema = version_of(db)
        seen = Health(size, _size(log_of(path)), is_wal, schema, known)
        if not schema:
            return msgspec.structs.replace(seen, foreign=foreign_in(db))
        if schema > known:
            return seen
        apart = differences(db, schema)
        seen = msgspec.structs.replace(
            seen, damage=_damage(db, size), differences=tuple(each.found for each in apart), **_settings(db)
        )
        # Our questions cannot be put to tables that are not ours.
        is_torn = any(each.hinders for each in apart)
        return seen if is_torn else msgspec.structs.replace(seen, **_contents(db, path, now))


def workers_of(path: Path) -> tuple[WorkerSeen, ...]:
    """The workers of a file that has our tables."""
    with looking_at(path) as db:
        return _workers(db, path)


def is_new_enough() -> bool:
    """Whether this Python's SQLite has all that the store asks of it."""
    return sqlite3.sqlite_version_info >= OLDEST_SQLITE


def has_reset_race() -> bool:
    """Whether this SQLite may, rarely, lose a commit when processes write and write back the log at once."""
    return sqlite3.sqlite_version_info < WITHOUT_RESET_RACE


def syncs_commits() -> bool:
    """Whether SQLite takes the setting under which every commit is synced to disk."""
    with closing(sqlite3.connect(":memory:")) as db:
        db.execute("pragma synchronous = full")
        return bool(db.execute("pragma synchronous").fetchone()[0] >= FULL)


def log_of(path: Path) -> Path:
    """The write-ahead log of a file."""
    return beside(path, "-wal")


def shared_memory_of(path: Path) -> Path:
    """What the processes on the write-ahead log of a file share."""
    return beside(path, "-shm")


@contextmanager
def looking_at(path: Path, *, is_at_rest: bool = False) -> Iterator[sqlite3.Connection]:
    """A connection that only reads; without a log nobody has the file open, and none is made for the look."""
    url = f"sqlite:///{path}"
    address = f"{path.absolute().as_uri()}?mode=ro{'&immutable=1' if is_at_rest else ''}"
    try:
        with closing(sqlite3.connect(address, uri=True)) as db:
            # Text that is no text is a finding of the audit, and no reason not to look at all the rest.
            db.text_factory = partial(str, encoding="utf-8", errors="replace")
            yield db
    except sqlite3.OperationalError as error:
        raise StoreUnavailable(url, str(error)) from None
    except sqlite3.DatabaseError as error:
        raise NotADatabase(url, f"the file cannot be used as a database: {error}") from None


def _settings(db: sqlite3.Connection) -> dict[str, Any]:
    (page_bytes,), (vacuum,) = (db.execute(f"pragma {name}").fetchone() for name in ("page_size", "auto_vacuum"))
    return {"page_bytes": page_bytes, "moves_pages": vacuum == VACUUM_FULL}


def _contents(db: sqlite3.Connection, path: Path, now: int) -> dict[str, Any]:
    asked = {name: for_sqlite(sql) for name, sql in named("health").items()}
    open_runs, held_runs = db.execute(asked["open_runs"]).fetchone()
    due_runs, due_since = db.execute(asked["due_runs"], {"now": now}).fetchone()
    (last_written_at,) = db.execute(asked["last_written"]).fetchone()
    ahead = db.execute(asked["written_ahead"], {"now": now}).fetchall()
    return {
        "is_read": True,
        "workers": _workers(db, path),
        "open_runs": open_runs,
        "held_runs": held_runs,
        "due_runs": due_runs,
        "due_since": _number(due_since),
        "due": tuple(_due(*row) for row in db.execute(asked["due_kinds"], {"now": now})),
        "duties": tuple(_duties(db.execute(asked["duties"]).fetchall())) if _has_duties(db) else (),
        "schedules": _schedules(db, asked["schedules"]) if _has_duties(db) else (),
        "last_written_at": _number(last_written_at) or 0,
        # What is no text there is a finding of the audit.
        "written_ahead": tuple(str(id) for id, _ in ahead),
        "written_ahead_runs": ahead[0][1] if ahead else 0,
    }


def _number(found: object) -> int | None:
    # As below: of what is no number it cannot be told how long ago it was.
    return found if isinstance(found, int) else None


def _due(namespace: object, queue: object, workflow: object, runs: int, late: int) -> Due:
    # What is no text there is a finding of the audit.
    return Due(str(namespace), str(queue), str(workflow), runs, late)


def _has_duties(db: sqlite3.Connection) -> bool:
    """Whether the file has a table of them; older ones have none."""
    return bool(db.execute("select 1 from sqlite_schema where type = 'table' and name = 'duties'").fetchone())


def _duties(rows: list[tuple[Any, ...]]) -> Iterator[DutySeen]:
    for *columns, has_row in rows:
        # As above.
        with suppress(msgspec.ValidationError):
            fields = dict(zip(DutySeen.__struct_fields__, (*columns, bool(has_row)), strict=True))
            yield msgspec.convert(fields, DutySeen)


def _schedules(db: sqlite3.Connection, sql: str) -> tuple[ScheduleSeen, ...]:
    return tuple(filter(None, (schedule_seen(*row) for row in db.execute(sql))))


def _workers(db: sqlite3.Connection, path: Path) -> tuple[WorkerSeen, ...]:
    db.row_factory = sqlite3.Row
    found = [_worker(dict(row), path) for row in db.execute(named("health")["workers"])]
    return tuple(worker for worker in found if worker is not None)


def _worker(row: dict[str, Any], path: Path) -> WorkerSeen | None:
    """A worker; None when its row is not one, which the audit tells."""
    try:
        row |= {"queues": msgspec.json.decode(row["queues"]), "is_alive": is_held(locks_of(path) / row["worker_id"])}
        row |= {"workflows": msgspec.json.decode(row.get("workflows") or "null")}
        return msgspec.convert(row, WorkerSeen)
    except (msgspec.MsgspecError, TypeError, ValueError):
        return None


def _damage(db: sqlite3.Connection, size: int) -> str | None:
    if size > LARGEST_CHECKED:
        return None
    (found,) = db.execute("pragma quick_check(1)").fetchone()
    return None if found == "ok" else str(found)


def _is_wal(path: Path) -> bool:
    with path.open("rb") as file:
        head = file.read(WRITE_VERSION + 1)
    return head.startswith(HEADER) and head[WRITE_VERSION] == WAL


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0
