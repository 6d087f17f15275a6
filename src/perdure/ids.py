"""The only maker of ids and randomness.

A run id is time-ordered: 11 hexadecimal digits of milliseconds, then 17 random ones.
Neighbours in time are neighbours in the database's indexes, which makes inserts
three to four times cheaper than random ids.
"""

import random
from hashlib import blake2b
from typing import Protocol

from perdure.errors import BadId

LONGEST_ID = 200


class Ids(Protocol):
    """Where ids and seeds come from; a simulation puts its own here."""

    def run_id(self, now: int) -> str:
        """A new run id; ids of later milliseconds sort after earlier ones."""

    def token(self) -> str:
        """A random id without order, for workers and messages."""

    def seed(self) -> int:
        """Sixty-three random bits."""


class RandomIds:
    """Ids from the operating system's randomness, or from a given seed."""

    def __init__(self, seed: int | None = None) -> None:
        self._random = random.Random(seed if seed is not None else random.SystemRandom().getrandbits(256))
        self._stamp = (0, "")

    def run_id(self, now: int) -> str:
        if self._stamp[0] != now:
            self._stamp = (now, f"{now:011x}")
        return f"{self._stamp[1]}{self._random.getrandbits(68):017x}"

    def token(self) -> str:
        return f"{self._random.getrandbits(96):024x}"

    def seed(self) -> int:
        return self._random.getrandbits(63)


def stamp_of(run_id: str) -> int:
    """The millisecond a run id was made in."""
    return int(run_id[:11], 16)


def child_run_id(parent_id: str, place: str, at: int) -> tuple[str, int]:
    """The run id and the seed of the child that this run starts at this place, the same ones on every replay."""
    digest = blake2b(f"{parent_id}/{place}".encode(), digest_size=17).digest()
    tail = int.from_bytes(digest[:9], "big") >> 4
    return f"{at:011x}{tail:017x}", int.from_bytes(digest[9:], "big") >> 1


def checked_id(what: str, value: object) -> str:
    """The id itself, if it can be shown, stored and typed by people; else BadId."""
    if not isinstance(value, str):
        raise BadId(what, value, f"is {type(value).__name__}, not str")
    if not value.strip():
        raise BadId(what, value, "is empty")
    if len(value) > LONGEST_ID:
        raise BadId(what, value, f"has {len(value)} characters")
    if not value.isprintable():
        raise BadId(what, value, "has unprintable characters")
    return value
