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
ALLOWED_HEADERS = "authorization, content-type, idempotency-key, last-event-id, perdure-csrf"


class Policy(msgspec.Struct, frozen=True):
    """What a server answers to. No hosts means every one: the program that mounted us sees to it."""

    hosts: frozenset[str] = frozenset()
    origins: frozenset[str] = frozenset()
    # Without keys the origin is all that tells a page from a person.
    checks_origin: bool = False
    max_body: int = MAX_BODY

    def check(self, method: str, headers: Mapping[str, str]) -> None:
        """NotAllowed when the request is meant for another host, or comes from a page that is not ours."""
        if self.hosts and _name(headers.get("host", "")) not in self.hosts:
            raise NotAllowed(
                f"this server does not answer to the name {headers.get('host', '')!r}",
                "use the address it listens on, or start it with --allow-host",
            )
        origin = headers.get("origin")
        if self.checks_origin and origin is not None and not self._is_own(origin, headers):
            raise NotAllowed(f"pages of {origin!r} may not use this server", "start it with --allow-origin")

    def _is_own(self, origin: str, headers: Mapping[str, str]) -> bool:
        return origin in self.origins or origin.partition("://")[2] == headers.get("host", "")

    def headers_for(self, headers: Mapping[str, str]) -> list[tuple[bytes, bytes]]:
        """The headers of an answer to this request."""
        origin = headers.get("origin")
        if origin is None or origin not in self.origins:
            return CAREFUL
        return [
            *CAREFUL,
            (b"access-control-allow-origin", origin.encode("latin-1")),
            (b"access-control-allow-headers", ALLOWED_HEADERS.encode()),
            (b"access-control-allow-methods", b"GET, POST, PUT, PATCH, DELETE"),
            (b"access-control-expose-headers", b"idempotency-replayed, retry-after, etag"),
            (b"vary", b"origin"),
        ]


def _name(host: str) -> str:
    """The name in a Host header, without its port."""
    return host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() else host
