"""By which numbers and names the processes on a schema meet: its advisory locks and its channel."""

import hashlib

# What a process says that begins to listen.
LISTENS = "l"


def key_of(schema: str, name: str) -> int:
    """The number of a lock."""
    digest = hashlib.blake2b(f"perdure {schema} {name}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, signed=True)


def channel_of(schema: str) -> str:
    """The channel on which the processes on a schema tell each other that something has changed."""
    return f"perdure_{hashlib.blake2b(schema.encode(), digest_size=8).hexdigest()}"


def saying(channel: str, text: str) -> str:
    """A transaction that says something on a channel; not on disk, for processes that notify wait for each other."""
    return f"begin; set local synchronous_commit = off; select pg_notify('{channel}', '{text}'); commit"
