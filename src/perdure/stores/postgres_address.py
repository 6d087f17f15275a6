"""Where a Postgres database is, and what its URL says besides.

In:   a URL: `postgresql://user:password@host/database?schema=perdure`.
Out:  what asyncpg connects to, and the options that are ours.
"""

from typing import NamedTuple
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from perdure.errors import BadOption

SCHEMES = ("postgresql", "postgres")
LONGEST_NAME = 63
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


def address_of(url: str) -> Address:
    """What a URL says; BadOption."""
    parts = urlsplit(url)
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    schema = options.pop("schema", "perdure")
    if not schema or len(schema.encode()) > LONGEST_NAME or "\0" in schema:
        raise BadOption(f"the schema {schema!r} is no name for one; use 1 to {LONGEST_NAME} bytes")
    notifies = _switched("notify", options.pop("notify", "on"))
    relaxed = _switched("relaxed", options.pop("relaxed", "off"))
    dsn = urlunsplit(("postgresql", *parts[1:3], urlencode(options), ""))
    return Address(dsn, shown(url), schema, notifies, relaxed)


def _switched(name: str, value: str) -> bool:
    if value not in _SWITCH:
        raise BadOption(f"{name}={value} in the URL says nothing; use {name}=on or {name}=off")
    return _SWITCH[value]


def shown(url: str) -> str:
    """A URL without its password."""
    parts = urlsplit(url)
    account, at, place = parts.netloc.rpartition("@")
    user, colon, _ = account.partition(":")
    hidden = f"{user}:***" if colon else user
    options = [(name, "***" if "password" in name else value) for name, value in parse_qsl(parts.query)]
    return urlunsplit((parts.scheme, f"{hidden}{at}{place}", parts.path, urlencode(options, safe="/*"), ""))
