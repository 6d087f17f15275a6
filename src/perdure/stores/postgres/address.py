"""Where a Postgres database is, and what its URL says besides.

In:   a URL: `postgresql://user:password@host/database?schema=perdure`.
Out:  what asyncpg connects to, and the options that are ours.
"""

from typing import NamedTuple
from urllib.parse import parse_qsl, urlencode, urlsplit

from perdure.errors import BadOption, without_password

SCHEMES = ("postgresql", "postgres")
LONGEST_NAME = 63
CONNECT_SECONDS = 10.0
# Which of several hosts is wanted.
SESSIONS = ("any", "primary", "standby", "prefer-standby", "read-write", "read-only")
_SWITCH = {"on": True, "off": False}


class Address(NamedTuple):
    """A database; `shown` is what people may see of its URL.

    `notifies` is off where nobody can be told of changes, and all look for them instead; a `relaxed` one may lose what
    it has committed when the server loses its power. Behind a pooler a connection is another one for every transaction.
    """

    dsn: str
    shown: str
    schema: str = "perdure"
    notifies: bool = True
    relaxed: bool = False
    is_pooled: bool = False
    connect_seconds: float = CONNECT_SECONDS


def address_of(url: str) -> Address:
    """What a URL says; BadOption."""
    try:
        parts = urlsplit(url)
        if parts.netloc.count("@") > 1 or (not parts.netloc and "@" in parts.path):
            # The driver would take what stands after the first one for the host, and a whole account for a database.
            raise ValueError  # noqa: TRY301 - told as the others are
        for place in parts.netloc.rpartition("@")[2].split(","):
            # Reading a port is what finds that it is none.
            urlsplit(f"//{place}").port  # noqa: B018 - as above
    except ValueError:
        # Python's own words may have a part of the password in them.
        raise BadOption(
            f"the URL {without_password(url)!r} cannot be read; use postgresql://user@host:5432/database, a port up to "
            "65535, and write signs such as / @ ? # in a password as %2F %40 %3F %23"
        ) from None
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    schema = _schema(options.pop("schema", "perdure"))
    notifies = _switched("notify", options.pop("notify", "on"))
    relaxed = _switched("relaxed", options.pop("relaxed", "off"))
    if (session := options.get("target_session_attrs", "any")) not in SESSIONS:
        raise BadOption(f"target_session_attrs={session} in the URL says nothing; use one of {', '.join(SESSIONS)}")
    connect_seconds = _seconds("connect_timeout", options.pop("connect_timeout", None))
    # Put together by hand: urlunsplit leaves out the slashes before a host that is not named.
    dsn = f"postgresql://{parts.netloc}{parts.path}" + (f"?{urlencode(options)}" if options else "")
    return Address(dsn, without_password(url), schema, notifies, relaxed, connect_seconds=connect_seconds)


def _schema(name: str) -> str:
    if not name or len(name.encode()) > LONGEST_NAME or any(sign in name for sign in "\0${}"):
        raise BadOption(f"the schema {name!r} is no name for one; use 1 to {LONGEST_NAME} bytes without $, {{ and }}")
    if name.startswith("pg_"):
        raise BadOption(f"the schema {name!r} is for the server's own; use a name that does not begin with pg_")
    return name


def _seconds(name: str, value: str | None) -> float:
    """So long a connection may take to be made; libpq takes whole seconds, and none for as long as it takes."""
    if value is None:
        return CONNECT_SECONDS
    if not value.isascii() or not value.isdigit():
        raise BadOption(f"{name}={value} in the URL says nothing; use a number of seconds")
    return float(value) or 3600.0


def _switched(name: str, value: str) -> bool:
    if value not in _SWITCH:
        raise BadOption(f"{name}={value} in the URL says nothing; use {name}=on or {name}=off")
    return _SWITCH[value]
