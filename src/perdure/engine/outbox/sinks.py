"""Sinks: where events go, as they are written down, and how one of them is sent.

A sink is a webhook, the log, or a function in the code of workers. Secrets are never shown.
"""

import ipaddress
import socket
from base64 import b64decode
from binascii import Error as NoBase64
from contextlib import suppress
from typing import Annotated, Protocol, TypeAlias
from urllib.parse import urlsplit

import msgspec

from perdure.errors import BadSink
from perdure.kernel.outbox import OutboxEvent

SHORTEST_SECRET = 24
# A secret that is in the environment of the workers, and one that is written as standardwebhooks does.
FROM_ENVIRONMENT, ENCODED = "env:", "whsec_"
# In the place of a secret that is not shown.
HIDDEN = "***"
# Addresses that carry an older one in their last bits.
TRANSLATED, COMPATIBLE = ipaddress.IPv6Network("64:ff9b::/96"), ipaddress.IPv6Network("::/96")


class Webhook(msgspec.Struct, frozen=True, tag="webhook", omit_defaults=True):
    """A URL that events are posted to, signed as standardwebhooks.com has it.

    The secret has at least 24 bytes; `env:NAME` is read from the environment of the worker that sends. Two of them,
    the new one first, sign both while they are rotated. Private addresses are refused unless they are allowed.
    """

    url: str
    secret: str | tuple[str, str]
    allow_private: bool = False

    def __post_init__(self) -> None:
        parts = urlsplit(self.url) if isinstance(self.url, str) else urlsplit("")
        if parts.scheme != "https" and not (self.allow_private is True and parts.scheme == "http"):
            raise BadSink("a webhook has an https:// URL; http:// is for private addresses, with allow_private=True")
        if not parts.hostname or parts.username is not None or parts.password is not None:
            raise BadSink("the URL of a webhook has a host, and no account; the secret says who sends")
        secrets = self.secrets
        if len(secrets) not in {1, 2} or not all(isinstance(secret, str) for secret in secrets):
            raise BadSink("a webhook has a secret, or two while they are rotated: (new, old)")
        for secret in secrets:
            check_secret(secret)

    def refuse_private(self) -> None:
        """BadSink for a private address that is not allowed; only of what people give.

        What such is may become stricter: one that was kept is read as it was, and refused whenever it is sent to.
        """
        host = urlsplit(self.url).hostname
        if not self.allow_private and host is not None and is_private(host):
            raise BadSink(f"{host} is a private address; allow_private=True allows such")

    @property
    def secrets(self) -> tuple[str, ...]:
        """The newest first."""
        return (self.secret,) if isinstance(self.secret, str) else tuple(self.secret)

    def __repr__(self) -> str:
        shown = ", ".join(map(hidden, self.secrets))
        return f"Webhook({self.url!r}, secret={shown}{', allow_private=True' if self.allow_private else ''})"

    __str__ = __repr__


class Log(msgspec.Struct, frozen=True, tag="log"):
    """The logger `perdure.events`, a line for each event."""


class SinkFunction(msgspec.Struct, frozen=True, tag="function"):
    """A function in the code of workers, decorated with `@sink`, under the name of the sink."""


Target: TypeAlias = Webhook | Log | SinkFunction
Count = Annotated[int, msgspec.Meta(ge=1)]


class Sink(msgspec.Struct, frozen=True, omit_defaults=True):
    """A sink as it is written down: where events go, and which."""

    target: Target
    events: tuple[str, ...]
    workflows: tuple[str, ...] | None = None
    include_values: bool = False
    max_attempts: Count = 10
    concurrency: Count = 8
    max_backlog: Count = 100_000
    created_at: int = 0
    paused: bool = False
    reason: str | None = None
    # Since when it is down, and what was wrong at last.
    down_at: int | None = None
    error: str | None = None


class NotDelivered(Exception):  # noqa: N818 - never leaves delivery
    """An event was not taken; the receiver may ask for a pause, or want nothing more at all."""

    def __init__(self, trouble: str, pause_ms: int = 0, *, is_gone: bool = False) -> None:
        super().__init__(trouble)
        self.pause_ms = pause_ms
        self.is_gone = is_gone


class EventSender(Protocol):
    """How events are sent to one sink."""

    # Whether it is done at once, and need not be waited for.
    is_instant: bool

    async def send(self, event: OutboxEvent) -> None:
        """Send one; NotDelivered, or any other error."""

    async def close(self) -> None:
        """Let go of connections."""


class EventSenders(Protocol):
    """What this process can send to."""

    def __call__(self, name: str, target: Target) -> EventSender | None:
        """A sender for this sink; None when this process has no code for it."""


def is_private(host: str) -> bool:
    """Whether a host is written as an address that is not for everybody, or is this machine's own name."""
    name = _as_looked_up(host)
    if name == "localhost" or name.endswith(".localhost"):
        return True
    address = _address(name)
    if isinstance(address, ipaddress.IPv6Address):
        address = _carried(address)
    return address is not None and (not address.is_global or address.is_multicast or _is_of_a_site(address))


def _as_looked_up(host: str) -> str:
    """A host in the letters in which it is looked up: digits and dots of other scripts become plain ones there."""
    with suppress(UnicodeError):
        host = host.encode("idna").decode()
    return host.lower().rstrip(".").partition("%")[0]


def _address(name: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """The address that a text is; also as a number, in hex or with fewer dots, which all lead there."""
    with suppress(ValueError):
        return ipaddress.ip_address(name)
    with suppress(OSError, ValueError):
        return ipaddress.IPv4Address(socket.inet_aton(name))
    return None


def _carried(address: ipaddress.IPv6Address) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """The older address that one carries, to which gateways hand on; itself when it carries none."""
    if address.sixtofour is not None:
        return address.sixtofour
    is_carrier = (
        address.ipv4_mapped is not None or address in TRANSLATED or (address in COMPATIBLE and int(address) > 1)
    )
    return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF) if is_carrier else address


def _is_of_a_site(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    return isinstance(address, ipaddress.IPv6Address) and address.is_site_local


def check_secret(secret: str) -> None:
    """BadSink for one that is too short; what an environment holds is looked at when it is used."""
    if secret == HIDDEN:
        return
    if secret.startswith(FROM_ENVIRONMENT):
        if not secret.removeprefix(FROM_ENVIRONMENT):
            raise BadSink("env: names a variable of the environment, such as env:CRM_SECRET")
        return
    if len(secret_bytes(secret)) < SHORTEST_SECRET:
        raise BadSink(f"the secret of a webhook has at least {SHORTEST_SECRET} bytes")


def secret_bytes(secret: str) -> bytes:
    """The bytes of a secret: after `whsec_` in base64, else as it stands; BadSink."""
    if not secret.startswith(ENCODED):
        return secret.encode()
    try:
        return b64decode(secret.removeprefix(ENCODED), validate=True)
    except NoBase64:
        raise BadSink("after whsec_ a secret is written in base64") from None


def hidden(secret: str) -> str:
    """What is shown of a secret: where it is, when it is in the environment."""
    return secret if secret.startswith(FROM_ENVIRONMENT) else HIDDEN


def shown(target: Target) -> Target:
    """A target as people may see it."""
    if not isinstance(target, Webhook):
        return target
    secrets = [hidden(secret) for secret in target.secrets]
    return msgspec.structs.replace(target, secret=secrets[0] if len(secrets) == 1 else (secrets[0], secrets[1]))
