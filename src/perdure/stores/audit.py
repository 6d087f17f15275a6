"""The audit of a database: what must be true of every one, asked of its tables in a SQLite file.

In:   a connection to a file with our tables: the database itself, or a copy of it.
Out:  what was looked at, and every violation found.

No question is asked that a healthy database could fail, be its clock set back or its messages unwanted.
"""

import re
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from functools import cache, partial
from itertools import islice
from typing import Any, NamedTuple, TypeAlias

import msgspec

from perdure.clock import elapsed
from perdure.kernel.events import (
    CLOSINGS,
    FACTS,
    RunCancelled,
    RunContinued,
    RunStarted,
    RunTerminated,
    RunTimedOut,
)
from perdure.kernel.failure import Failure
from perdure.kernel.messages import KINDS
from perdure.kernel.quarantine import Death
from perdure.stores.columns import misfits
from perdure.stores.differences import Difference
from perdure.stores.queries import STORES, VERSION, migrations, named
from perdure.stores.unreadable import is_text

# So many violations of one sentence are told; a file with more than that needs a backup.
MOST_TOLD = 100
FILE = "file"
FILE_INVARIANT = "the file is whole: every page, row and entry of an index can be read."
SCHEMA = "schema"
SCHEMA_INVARIANT = "the tables and indexes are those of the version the file says it has."
COLUMNS = "columns"
COLUMNS_INVARIANT = "every column holds what it is for: a number, or text."
_PURPOSE = re.compile(r"^-- (\w+): ([^\n]*)$", re.MULTILINE)


# Of which run, under which id, and what is wrong.
Row: TypeAlias = tuple[str | None, str | None, str]


class Violation(msgspec.Struct, frozen=True):
    """A sentence that is not true, of which run, whether that has ended, and how."""

    check: str
    invariant: str
    namespace: str | None
    workflow_id: str | None
    run_id: str | None
    found: str
    has_ended: bool = False


class Checked(msgspec.Struct, frozen=True):
    """A sentence that was checked, and how long that took. `has_more` violations than are told."""

    check: str
    invariant: str
    violations: int
    has_more: bool
    ms: float


class Audit(msgspec.Struct, frozen=True):
    """What was looked at and found."""

    runs: int
    events: int
    checks: tuple[Checked, ...]
    violations: tuple[Violation, ...]


class Question(NamedTuple):
    """An invariant, and what finds its violations."""

    check: str
    invariant: str
    ask: Callable[[sqlite3.Connection], Iterator[Row]]


def invariants() -> dict[str, str]:
    """Every sentence that is checked, by the name of its check."""
    return {FILE: FILE_INVARIANT, SCHEMA: SCHEMA_INVARIANT, COLUMNS: COLUMNS_INVARIANT} | _asked()


def audited(db: sqlite3.Connection, damage: Iterable[Row], apart: Sequence[Difference]) -> Audit:
    """The audit of tables as they are in a file, when this is known of what keeps them."""
    _teach(db)
    audits = _Auditing(db)
    # A file that is not whole answers the other questions at random, or not at all.
    if audits.holds(Question(FILE, FILE_INVARIANT, lambda _: iter(damage))) and audits.has_schema(apart):
        audits.holds(Question(COLUMNS, COLUMNS_INVARIANT, misfits))
        for check, invariant in _asked().items():
            audits.holds(Question(check, invariant, _query(check)))
    return audits.result()


class _Auditing:
    """Asks questions, and keeps what comes of them."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db
        self._checks: list[Checked] = []
        self._violations: list[Violation] = []

    def has_schema(self, apart: Sequence[Difference]) -> bool:
        """Tell of the schema; whether the other questions can be put to it."""
        self.holds(Question(SCHEMA, SCHEMA_INVARIANT, lambda _: ((None, None, each.found) for each in apart)))
        return not any(difference.hinders for difference in apart)

    def holds(self, question: Question) -> bool:
        """Ask, and keep the answer."""
        began = elapsed()
        found: list[Violation] = []
        try:
            rows = islice(question.ask(self._db), MOST_TOLD + 1)
            found += (self._violation(question, *row) for row in rows)
        except sqlite3.OperationalError as error:
            if getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) != sqlite3.SQLITE_ERROR:
                raise
            # Something in the rows is so wrong that the question cannot be put to them.
            found.append(Violation(question.check, question.invariant, None, None, None, str(error)))
        except sqlite3.DatabaseError as error:
            found.append(Violation(FILE, FILE_INVARIANT, None, None, None, str(error)))
        ms, told = (elapsed() - began) * 1000, found[:MOST_TOLD]
        self._checks.append(Checked(question.check, question.invariant, len(told), len(found) > MOST_TOLD, ms))
        self._violations += told
        return not found

    def _violation(self, question: Question, run_id: object, workflow_id: object, found: object) -> Violation:
        asked = "select namespace, closed_at is not null from runs where run_id = ?"
        home, has_ended = self._db.execute(asked, (run_id,)).fetchone() or (None, False)
        namespace, id, run_id = (None if each is None else str(each) for each in (home, workflow_id, run_id))
        # A text that is put together with an empty column is empty.
        told = str(found or "has columns that are empty")
        return Violation(question.check, question.invariant, namespace, id, run_id, told, bool(has_ended))

    def result(self) -> Audit:
        runs, events = (_count(self._db, table) for table in ("runs", "events"))
        return Audit(runs, events, tuple(self._checks), tuple(self._violations))


def _count(db: sqlite3.Connection, table: str) -> int:
    try:
        return int(db.execute(f"select count(*) from {table}").fetchone()[0])  # noqa: S608 - one of two names
    except sqlite3.DatabaseError:
        return 0


def _query(check: str) -> Callable[[sqlite3.Connection], Iterator[Row]]:
    return lambda db: iter(db.execute(named("audit")[check]))


@cache
def _asked() -> dict[str, str]:
    """The sentences of `sql/audit.sql` by the names of their queries."""
    return dict(_PURPOSE.findall(STORES.joinpath("sql", "audit.sql").read_text()))


# Reading as the engine does

Read: TypeAlias = Callable[[Any], object]

_ANYTHING: Read = msgspec.json.Decoder(msgspec.Raw).decode
_FAILURE: Read = msgspec.json.Decoder(Failure).decode
_DEATHS: Read = msgspec.json.Decoder(tuple[Death, ...]).decode
_FACTS: dict[str, Read] = {
    name: msgspec.json.Decoder(fact).decode for name, fact in FACTS.items() if fact not in CLOSINGS | {RunStarted}
}
_MESSAGES: dict[str, Read] = {name: msgspec.json.Decoder(body).decode for name, body in KINDS.items()}
_OUTCOMES: dict[str, Read] = {
    "COMPLETED": _ANYTHING,
    "FAILED": _FAILURE,
    "CANCELLED": msgspec.json.Decoder(RunCancelled).decode,
    "TERMINATED": msgspec.json.Decoder(RunTerminated).decode,
    "TIMED_OUT": msgspec.json.Decoder(RunTimedOut).decode,
    "CONTINUED": msgspec.json.Decoder(RunContinued).decode,
}


def _teach(db: sqlite3.Connection) -> None:
    """Give SQL the engine's own ways to read."""
    for name, read in (("json", _ANYTHING), ("failure", _FAILURE), ("deaths", _DEATHS)):
        db.create_function(f"trouble_in_{name}", 1, partial(_trouble, read), deterministic=True)
    for name, ways in (("fact", _FACTS), ("message", _MESSAGES), ("outcome", _OUTCOMES)):
        by_bytes = {kind.encode(): read for kind, read in ways.items()}
        db.create_function(f"is_kind_of_{name}", 1, by_bytes.__contains__, deterministic=True)
        db.create_function(f"trouble_in_{name}", 2, _reader(by_bytes), deterministic=True)


def _reader(ways: dict[bytes, Read]) -> Callable[[bytes | None, object], str | None]:
    def trouble(kind: bytes | None, text: object) -> str | None:
        return _trouble(ways[kind], text) if kind in ways else "there is no such kind"

    return trouble


def _trouble(read: Read, text: object) -> str | None:
    """Why it cannot be read; None when it can."""
    if not is_text(text):
        return "it is no text"
    try:
        read(text)
    except (msgspec.MsgspecError, RecursionError) as error:
        return str(error).replace("`", "")
    return None


def columns_of_file() -> dict[str, list[str]]:
    """The columns of each table in a SQLite file, as `name kind`, for a copy that is to be audited."""
    with closing(sqlite3.connect(":memory:")) as db:
        for step in migrations("sqlite"):
            db.executescript(step)
        found = db.execute(
            "select tables.name, columns.name || ' ' || columns.type from sqlite_schema as tables, "
            "pragma_table_info(tables.name) as columns where tables.type = 'table' and tables.name not glob 'sqlite_*'"
        )
        columns: dict[str, list[str]] = {}
        for table, column in found:
            columns.setdefault(table, []).append(column)
    del columns[VERSION]
    return columns
