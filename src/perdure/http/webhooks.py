"""Webhooks: events posted to a URL, signed as standardwebhooks.com has it.

In:   an event, and a Webhook.
Out:  a request, to an address that anybody may be asked to send to; NotDelivered for every answer but 2xx.
"""

import asyncio
import os
import socket
from base64 import b64encode
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from importlib import import_module
from typing import Any

import msgspec

from perdure.engine.outbox.sinks import FROM_ENVIRONMENT, NotDelivered, Webhook, check_secret, is_private, secret_bytes
from perdure.errors import BadOption, BadSink
from perdure.kernel.outbox import OutboxEvent

TIMEOUT_SECONDS = 20
LONGEST_BODY = 20_000
GONE = 410
# What can be left out of a body that is too large, the largest first as a rule.
_OPTIONAL = ("input", "result", "attributes", "error")


class WebhookSender:
    """Posts events; one session for all of a sink."""

    is_instant = False

    def __init__(self, webhook: Webhook) -> None:
        self._webhook = webhook
        self._aiohttp: Any = _extra("aiohttp")
        self._signing: Any = _extra("standardwebhooks")
        # As it will be connected to: one that is an address is not looked up.
        self._host = str(_extra("yarl").URL(webhook.url).raw_host)
        self._session: Any = None

    async def send(self, event: OutboxEvent) -> None:
        """Post one; NotDelivered says what came instead of 2xx."""
        self._refuse_private(self._host)
        body = body_of(event)
        try:
            async with asyncio.timeout(TIMEOUT_SECONDS):
                posting = self._opened().post(
                    self._webhook.url, data=body, headers=self._headers(event, body), allow_redirects=False
                )
                async with posting as answer:
                    self._refuse(answer.status, answer.headers.get("retry-after"))
        except TimeoutError:
            raise NotDelivered(f"no answer within {TIMEOUT_SECONDS} seconds") from None
        except self._aiohttp.ClientError as error:
            raise NotDelivered(f"{type(error).__name__}: {error}") from None

    def _refuse_private(self, host: str, *addresses: str) -> None:
        """NotDelivered where a host leads inside, or is such an address itself."""
        if self._webhook.allow_private:
            return
        if private := next(filter(is_private, (*addresses, host)), None):
            raise NotDelivered(f"{host} is at the private address {private}; allow_private=True allows such")

    def _refuse(self, status: int, retry_after: str | None) -> None:
        if not 200 <= status < 300:  # noqa: PLR2004 - a success
            raise NotDelivered(f"the answer was {status}", pause_of(retry_after), is_gone=status == GONE)

    def _headers(self, event: OutboxEvent, body: bytes) -> dict[str, str]:
        now = datetime.now(UTC)
        signatures = [self._signed(secret, event.id, now, body.decode()) for secret in self._webhook.secrets]
        return {
            "content-type": "application/json",
            "webhook-id": event.id,
            "webhook-timestamp": str(int(now.timestamp())),
            "webhook-signature": " ".join(signatures),
        }

    def _signed(self, secret: str, id: str, now: datetime, body: str) -> str:
        return str(self._signing.Webhook(b64encode(found_secret(secret)).decode()).sign(id, now, body))

    def _opened(self) -> Any:
        if self._session is None:
            connector = self._aiohttp.TCPConnector(resolver=self._resolver(), limit=0)
            self._session = self._aiohttp.ClientSession(connector=connector, trust_env=False)
        return self._session

    def _resolver(self) -> Any:
        """Looks addresses up, and refuses those that are not for everybody; asked at every new connection."""
        aiohttp, refuse_private = self._aiohttp, self._refuse_private

        class PublicResolver(aiohttp.ThreadedResolver):  # type: ignore[misc, name-defined, unused-ignore]  # only there with the extra
            async def resolve(self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET) -> Any:
                found = await super().resolve(host, port, family)
                refuse_private(host, *(each["host"] for each in found))
                return found

        return PublicResolver()

    async def close(self) -> None:
        """Let go of connections."""
        if self._session is not None:
            await self._session.close()
            self._session = None


def _extra(module: str) -> Any:
    try:
        return import_module(module)
    except ImportError:
        raise BadOption(f"webhooks need {module}; `pip install 'perdure[webhooks]'` brings it") from None


def found_secret(secret: str) -> bytes:
    """The bytes of a secret, which may be in the environment; NotDelivered when it is not, or too short."""
    if secret.startswith(FROM_ENVIRONMENT):
        name = secret.removeprefix(FROM_ENVIRONMENT)
        secret = os.environ.get(name, "")
        if not secret:
            raise NotDelivered(f"the environment has no {name}, which the secret is to be in")
    try:
        check_secret(secret)
    except BadSink as error:
        raise NotDelivered(str(error)) from None
    return secret_bytes(secret)


def body_of(event: OutboxEvent) -> bytes:
    """The event as it is sent; what makes it too large is left out, and named."""
    data = {"id": event.id, "namespace": event.namespace} | event.data
    left_out: list[str] = []
    while len(body := _encoded(event, data, left_out)) > LONGEST_BODY:
        largest = [name for name in _OPTIONAL if name in data]
        if not largest:
            raise NotDelivered(f"the event has {len(body):,} bytes, the most is {LONGEST_BODY:,}")
        del data[largest[0]]
        left_out.append(largest[0])
    return body


def _encoded(event: OutboxEvent, data: dict[str, object], left_out: list[str]) -> bytes:
    told = data | {"left_out": left_out} if left_out else data
    return msgspec.json.encode({"type": event.type, "timestamp": event.at, "data": told})


def pause_of(retry_after: str | None) -> int:
    """The pause that a receiver asks for, in milliseconds: so many seconds, or until a time; 0 when it says neither."""
    if retry_after is None:
        return 0
    try:
        if retry_after.strip().isdigit():
            return int(retry_after) * 1000
        until = parsedate_to_datetime(retry_after)
    except ValueError:
        return 0
    # One without a zone is in GMT, as all of HTTP.
    until = until if until.tzinfo is not None else until.replace(tzinfo=UTC)
    return max(0, round((until - datetime.now(UTC)).total_seconds() * 1000))
