"""URLs: what a URL names, a store, a file or a server.

In:   the URL of a database.
Out:  its store, not opened yet; the file behind it; the database as people may see it.
"""

import re
from pathlib import Path
from urllib.parse import unquote

from perdure.errors import BadOption, without_password
from perdure.stores.port import Store
from perdure.stores.postgres.address import SCHEMES
from perdure.stores.sqlite.files import checked_name
from perdure.stores.sqlite.store import SqliteStore

FILE = "sqlite:///"
MEMORY = "sqlite://"
# What was meant for a file: nothing in it can be an account, a password or an option.
_LIKE_A_FILE = re.compile(r"(?P<scheme>sqlite:)?(?P<slashes>/*)(?P<path>[^:@=?#\s]+)", re.IGNORECASE)
_FILE_ENDINGS = (".db", ".sqlite", ".sqlite3")


def store_for(url: str) -> Store:
    """The store behind a URL; BadOption when it names none."""
    urls = "use sqlite:///file.db, sqlite:// for memory, postgresql://host/database, or http://host:port of a server"
    if not isinstance(url, str):
        raise BadOption(f"the URL is of type {type(url).__name__}, not a text; {urls}")
    scheme, separator, rest = url.partition("://")
    if separator and scheme in SCHEMES:
        return _postgres(url)
    shown, meant = repr(without_password(url)), _did_you_mean(url)
    if not separator or scheme != "sqlite":
        raise BadOption(f"the URL {shown} names no store{meant}; {urls}")
    if "?" in rest:
        raise BadOption(f"the URL {shown} has options after the ?, SQLite takes none; a ? in a file's name is %3F")
    if not rest:
        return SqliteStore(None)
    if not rest.startswith("/") or rest == "/":
        raise BadOption(f"the URL {shown} names no file{meant}; use sqlite:///file.db, or sqlite:////absolute/path.db")
    return SqliteStore(checked_name(unquote(rest[1:])))


def _did_you_mean(url: str) -> str:
    """The URL of the file that was probably meant, for the middle of a sentence; nothing when none is likely."""
    found = _LIKE_A_FILE.fullmatch(url)
    if found is None or not (found["scheme"] or found["path"].lower().endswith(_FILE_ENDINGS)):
        return ""
    slashes, path = len(found["slashes"]), found["path"]
    # After `sqlite:` one slash begins the path of a file that lies in a folder; nobody has one at the root.
    is_absolute = slashes > len("///") or (slashes == 1 and "/" in path) if found["scheme"] else slashes > 0
    return f" (did you mean {FILE}{'/' if is_absolute else ''}{path}?)"


def _postgres(url: str) -> Store:
    try:
        from perdure.stores.postgres.store import PostgresStore  # noqa: PLC0415 - its driver is an extra
    except ModuleNotFoundError as error:
        raise BadOption(f"Postgres needs the package {error.name}: pip install 'perdure[postgres]'") from None
    return PostgresStore(url)


def is_postgres(url: str) -> bool:
    """Whether a URL names a Postgres database."""
    return url.partition("://")[0] in SCHEMES


def file_of(url: str) -> Path | None:
    """The file behind a URL, if it names one."""
    return Path(unquote(url.removeprefix(FILE))) if url.startswith(FILE) and url != FILE else None


def location(url: str) -> str:
    """Where the database is, whatever the folder of the reader: a file's absolute path."""
    path = file_of(url)
    return without_password(url) if path is None else str(path.absolute())
