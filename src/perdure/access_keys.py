"""Access keys: how one is made, read and known again.

In:   randomness of the operating system; a key as a caller sends it.
Out:  `pdk_<id>_<256 bits>_<checksum>`, shown once; its id and the hash that the database keeps.
The checksum tells a mistyped key from a wrong one before the database is asked.
"""

import hashlib
import hmac
import secrets
import zlib
from typing import NamedTuple

PREFIX = "pdk"
ID_BYTES, SECRET_BYTES = 6, 32


class NewKey(NamedTuple):
    """A key that was just made; `text` is shown once and kept nowhere."""

    key_id: str
    text: str
    hash: str


def new_key() -> NewKey:
    """A key that nobody has had."""
    key_id = secrets.token_hex(ID_BYTES)
    body = f"{PREFIX}_{key_id}_{secrets.token_hex(SECRET_BYTES)}"
    text = f"{body}_{_checksum(body)}"
    return NewKey(key_id, text, hash_of(text))


def id_in(text: str) -> str | None:
    """The id that a key says it has; None when it is no key, or was mistyped."""
    body, _, checksum = text.rpartition("_")
    parts = body.split("_")
    if len(parts) != 3 or parts[0] != PREFIX or checksum != _checksum(body):  # noqa: PLR2004 - prefix, id, secret
        return None
    return parts[1]


def hash_of(text: str) -> str:
    """What is kept of a key. It has 256 random bits, so one round is enough."""
    return hashlib.sha256(text.encode()).hexdigest()


def is_same(text: str, hash: str) -> bool:
    """Whether this is the key of a hash; takes as long for a near one as for a far one."""
    return hmac.compare_digest(hash_of(text), hash)


def _checksum(body: str) -> str:
    return f"{zlib.crc32(body.encode()):08x}"
