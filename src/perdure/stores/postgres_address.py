"""Where a Postgres database is, and what its URL says besides.

In:   a URL: `postgresql://user:password@host/database?schema=perdure`.
Out:  what asyncpg connects to, and the options that are ours.
"""

from typing import NamedTuple
from urllib.parse import parse_qsl, urlencode, urlsplit

from perdure.errors import BadOption, without_password

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
    try:
        parts = urlsplit(url)
        if parts.netloc.count("@") > 1:
            # The driver would take what stands after the first one for the host.
            raise ValueError  # noqa: TRY301 - told as the others are
        for place in parts.netloc.rpartition("@")[2].split(","):
            # Reading a port is what finds that it is none.
            urlsplit(f"//{place}").port  # noqa: B018 - as above
    except ValueError:
        # Python's own words may have a part of the password in them.
        raise BadOption(
            f"the URL {without_password(url)!r} cannot be read; use postgresql://user@host:5432/database, and write "
            "signs such as / @ ? # in a password as %2F %40 %3F %23"
        ) from None
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    schema = options.pop("schema", "perdure")
    if not schema or len(schema.encode()) > LONGEST_NAME or any(sign in schema for sign in "\0${}"):
        raise BadOption(f"the schema {schema!r} is no name for one; use 1 to {LONGEST_NAME} bytes without $, {{ and }}")
    notifies = _switched("notify", options.pop("notify", "on"))
    relaxed = _switched("relaxed", options.pop("relaxed", "off"))
    # Put together by hand: urlunsplit leaves out the slashes before a host that is not named.
    dsn = f"postgresql://{parts.netloc}{parts.path}" + (f"?{urlencode(options)}" if options else "")
    return Address(dsn, without_password(url), schema, notifies, relaxed)


def _switched(name: str, value: str) -> bool:
    if value not in _SWITCH:
        raise BadOption(f"{name}={value} in the URL says nothing; use {name}=on or {name}=off")
    return _SWITCH[value]
