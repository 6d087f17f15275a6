"""Messages: what the outside world has to say to a run.

A message waits in the run's inbox until the owner turns it into an event.
"""

import msgspec


class SignalSent(msgspec.Struct, frozen=True):
    """Somebody sent the run a signal."""

    name: str
    payload: msgspec.Raw


class Message(msgspec.Struct, frozen=True):
    """A message in an inbox. `number` rises with every message of the database."""

    number: int
    message_id: str
    body: SignalSent
    at: int


KINDS: dict[str, type[SignalSent]] = {"SignalSent": SignalSent}
