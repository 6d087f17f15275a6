"""An issuer of tokens: the keys that it signs them with, fetched as OpenID Connect says and kept.

In:   the address of an issuer.
Out:  its public key of an id; None for one that it does not have, IssuerUnavailable when it was never reached.

Keys are asked for again after ten minutes, beside the request that noticed it, and at once for an id that is not known;
never more often than every thirty seconds. While the issuer cannot be reached those it had are good for a day.
"""

import asyncio
import ipaddress
import logging
from collections.abc import Awaitable, Callable
from http.client import HTTPException, HTTPMessage
from typing import IO, Any, TypeAlias
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

import msgspec
from jwt import PyJWK
from jwt.exceptions import PyJWTError

from perdure.clock import Clock
from perdure.errors import BadOption, IssuerUnavailable

log = logging.getLogger("perdure.http")

# What may sign a token: public keys alone. With a shared secret whoever can check a token could make one.
ALGORITHMS = ("RS256", "RS384", "RS512", "ES256", "ES384", "ES512", "EdDSA")
KINDS = {"RS": "RSA", "ES": "EC", "Ed": "OKP"}
FRESH_MS, KEPT_MS, PAUSE_MS = 10 * 60_000, 24 * 3_600_000, 30_000
FETCH_SECONDS = 5.0
LARGEST_ANSWER = 1024 * 1024

Fetch: TypeAlias = Callable[[str], Awaitable[bytes]]


class _Document(msgspec.Struct):
    """What an issuer tells of itself."""

    issuer: str
    jwks_uri: str


class _KeySet(msgspec.Struct):
    keys: list[dict[str, Any]]


class Issuer:
    """The keys of an issuer."""

    def __init__(self, url: str, clock: Clock, fetch: Fetch | None = None) -> None:
        self.url = checked_url(url)
        self._clock = clock
        self._fetch = fetch or fetched
        self._keys: dict[str, dict[str, Any]] = {}
        self._fetched_at: int | None = None
        self._tried_at: int | None = None
        self._asking: asyncio.Task[None] | None = None

    async def key(self, key_id: str, algorithm: str) -> PyJWK | None:
        """The key of this id, if it is one for this algorithm."""
        age = None if self._fetched_at is None else self._clock.monotonic() - self._fetched_at
        if age is None or age > KEPT_MS or key_id not in self._keys:
            await self._refreshed()
        elif age > FRESH_MS:
            self._refreshed()
        if self._fetched_at is None or self._clock.monotonic() - self._fetched_at > KEPT_MS:
            raise IssuerUnavailable(self.url)
        found = self._keys.get(key_id)
        return None if found is None else _key_for(found, algorithm)

    def _refreshed(self) -> Awaitable[None]:
        """Ask for the keys again, once for everybody who wants them; not when that was done a moment ago."""
        if self._asking is None or self._asking.done():
            now = self._clock.monotonic()
            if self._tried_at is not None and now - self._tried_at < PAUSE_MS:
                return _nothing()
            self._tried_at = now
            self._asking = asyncio.ensure_future(self._ask())
        return asyncio.shield(self._asking)

    async def _ask(self) -> None:
        try:
            about = await self._fetch(f"{self.url.rstrip('/')}/.well-known/openid-configuration")
            where = self._where_keys_are(msgspec.json.decode(about, type=_Document))
            found = msgspec.json.decode(await self._fetch(where), type=_KeySet)
        except (OSError, HTTPException, BadOption, msgspec.MsgspecError, UnicodeDecodeError, ValueError) as error:
            # Whatever it was, the keys that are known stay.
            told = {"event": "issuer_unavailable", "issuer": self.url}
            log.warning("the keys of %s could not be fetched: %s", self.url, error, extra=told)
            return
        self._keys = {key["kid"]: key for key in found.keys if isinstance(key.get("kid"), str)}
        self._fetched_at = self._clock.monotonic()

    def _where_keys_are(self, document: _Document) -> str:
        if document.issuer != self.url:
            raise BadOption(f"it calls itself {document.issuer!r}")
        return checked_url(document.jwks_uri)


def checked_url(url: str) -> str:
    """An address that nobody on the way can answer for; BadOption."""
    parts = urlsplit(url)
    is_here = parts.hostname == "localhost" or _is_loopback(parts.hostname or "")
    if not parts.hostname or parts.scheme not in ({"https", "http"} if is_here else {"https"}):
        raise BadOption(f"the address {url!r} of an issuer must begin with https://")
    return url


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _key_for(found: dict[str, Any], algorithm: str) -> PyJWK | None:
    if found.get("kty") != KINDS[algorithm[:2]] or found.get("use", "sig") != "sig":
        return None
    if found.get("alg", algorithm) != algorithm:
        return None
    try:
        return PyJWK(found, algorithm)
    except PyJWTError:
        return None


async def _nothing() -> None:
    pass


class _NoRedirects(HTTPRedirectHandler):
    """An issuer is where it says it is."""

    def redirect_request(
        self, req: Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str
    ) -> None:
        return None


async def fetched(url: str) -> bytes:
    """What is at an address; OSError when nothing is."""
    return await asyncio.to_thread(_fetched, url)


def _fetched(url: str) -> bytes:
    with build_opener(_NoRedirects).open(url, timeout=FETCH_SECONDS) as answer:  # the scheme was checked
        data: bytes = answer.read(LARGEST_ANSWER + 1)
    if len(data) > LARGEST_ANSWER:
        raise OSError(f"more than {LARGEST_ANSWER} bytes came from {url}")
    return data
