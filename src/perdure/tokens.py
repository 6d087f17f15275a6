"""Tokens: texts that let whoever has one resolve one deferred of one run.

In:   the secret of a database, a run and the name of a deferred.
Out:  a text that is safe in a URL; the run and the name that such a text speaks of.

A run has a key of its own, made from the secret: a process that has the key of a run can make the tokens of that run
and of no other.
"""

import binascii
import hmac
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import NamedTuple

from perdure.errors import BadToken

# So many bytes of the signature are in a token: 160 bits.
SIGNATURE_BYTES = 20


class Meant(NamedTuple):
    """What a token speaks of, as long as nobody has looked whether it is right."""

    run_id: str
    name: str


def run_key(secret: bytes, run_id: str) -> bytes:
    """The key that the tokens of a run are made with."""
    return hmac.digest(secret, run_id.encode(), "sha256")


def deferred_token(key: bytes, namespace: str, run_id: str, name: str) -> str:
    """The token of a deferred, the same one every time."""
    # Names hold no NUL, so that no two pairs are written alike.
    signature = hmac.digest(key, f"{namespace}\0{name}".encode(), "sha256")[:SIGNATURE_BYTES]
    return f"{_written(f'{run_id}.{name}'.encode())}.{_written(signature)}"


def meant_by(token: object) -> Meant:
    """The run and the name in a token, which may be anybody's; BadToken when there are none."""
    try:
        told = str(token).partition(".")[0]
        run_id, dot, name = urlsafe_b64decode(told + "=" * (-len(told) % 4)).decode().partition(".")
    except (binascii.Error, ValueError):
        raise BadToken from None
    if not (isinstance(token, str) and dot and name):
        raise BadToken
    return Meant(run_id, name)


def check(secret: bytes, namespace: str, token: str, meant: Meant) -> None:
    """BadToken, unless the token is, letter by letter, the one that was made for what it speaks of."""
    right = deferred_token(run_key(secret, meant.run_id), namespace, *meant)
    if not hmac.compare_digest(right.encode(), token.encode(errors="replace")):
        raise BadToken


def _written(data: bytes) -> str:
    return urlsafe_b64encode(data).rstrip(b"=").decode()
