"""Policy: which hosts and origins are answered, and the headers that keep browsers careful.

In:   the headers of a request.
Out:  nothing, or NotAllowed; headers for every answer.
A page that lets its own name point to this machine sends its own name as Host, and is refused.
"""

from collections.abc import Mapping

import msgspec

from perdure.errors import NotAllowed

LOOPBACK = frozenset({"localhost", "127.0.0.1", "[::1]"})
MAX_BODY = 8 * 1024 * 1024
CAREFUL = [
    (b"x-content-type-options", b"nosniff"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'; base-uri 'none'"),
    (b"referrer-policy", b"no-referrer"),
]
# A browser that was here once by https comes by nothing else for a year.
ALWAYS_TLS = (b"strict-transport-security", b"max-age=31536000")
ALLOWED_HEADERS = "authorization, content-type, idempotency-key, last-event-id, perdure-csrf"


class Policy(msgspec.Struct, frozen=True):
    """What a server answers to. No hosts means every one: the program that mounted us sees to it."""

    hosts: frozenset[str] = frozenset()
    origins: frozenset[str] = frozenset()
    # Without keys the origin is all that tells a page from a person.
    checks_origin: bool = False
    max_body: int = MAX_BODY
    # Whether browsers are told so. Not by a server for the own machine: all others on it would be meant as well.
    is_always_tls: bool = False

    def check(self, headers: Mapping[str, str], *, is_socket: bool = False) -> None:
        """NotAllowed when the request is meant for another host, or comes from a page that is not ours.

        Browsers let every page open a WebSocket and read it, so there the origin is looked at in any case.
        """
        if self.hosts and name_in(headers.get("host", "")) not in self.hosts:
            raise NotAllowed(
                f"this server does not answer to the name {headers.get('host', '')!r}",
                "use the address it listens on, or start it with --allow-host",
            )
        origin = headers.get("origin")
        if (self.checks_origin or is_socket) and origin is not None and not self._is_own(origin, headers):
            raise NotAllowed(f"pages of {origin!r} may not use this server", "start it with --allow-origin")

    def _is_own(self, origin: str, headers: Mapping[str, str]) -> bool:
        return origin in self.origins or origin.partition("://")[2] == headers.get("host", "")

    def headers_for(self, headers: Mapping[str, str]) -> list[tuple[bytes, bytes]]:
        """The headers of an answer to this request."""
        careful = [*CAREFUL, ALWAYS_TLS] if self.is_always_tls else CAREFUL
        origin = headers.get("origin")
        if origin is None or origin not in self.origins:
            return careful
        return [
            *careful,
            (b"access-control-allow-origin", origin.encode("latin-1")),
            (b"access-control-allow-headers", ALLOWED_HEADERS.encode()),
            (b"access-control-allow-methods", b"GET, POST, PUT, PATCH, DELETE"),
            (b"access-control-expose-headers", b"idempotency-replayed, retry-after, etag"),
            (b"vary", b"origin"),
        ]


def name_in(host: str) -> str:
    """The name in a Host header, in small letters and without its port."""
    name, _, port = host.lower().rpartition(":")
    return name if port.isdigit() else host.lower()
