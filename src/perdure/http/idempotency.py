"""The header `Idempotency-Key`: a request that is sent again under it is done once, and answered as at first.

In:   a request that changes something, and its route.
Out:  the engine that does its command once; the first answer again, with `Idempotency-Replayed: true`.

Key and effect are written together by the engine, and the answer as it was sent right after. Where that came too late,
as when the server died in between, the same route answers anew, about what was done then.
"""

from typing import Any
from urllib.parse import parse_qsl

import msgspec

from perdure.engine.keys.commands import digest_of
from perdure.engine.ports import CommandKey, Engine, ServerReply
from perdure.errors import PerdureError, RequestRejected
from perdure.http.access import Caller
from perdure.http.calls import Call
from perdure.http.table import Reply, Route
from perdure.ids import checked_id

HEADER = "idempotency-key"
REPLAYED = ("idempotency-replayed", "true")
# A longer answer is not kept; it is made anew.
LONGEST_KEPT = 256 * 1024


class KeptReply(msgspec.Struct, frozen=True):
    """An answer as it was sent."""

    status: int
    headers: tuple[tuple[str, str], ...]
    body: str


def key_in(
    text: str, route: Route, caller: Caller, namespace: str, path: object, query: bytes, body: bytes
) -> CommandKey:
    """The key of a request, with what it asks for; how long it waits for the result is no part of that."""
    asked = [pair for pair in parse_qsl(query.decode("latin-1"), keep_blank_values=True) if pair[0] != "wait"]
    digest = digest_of(caller.entity_id, path, sorted(asked), msgspec.Raw(body or b"{}"))
    command = f"{route.method} {route.path}"
    return CommandKey(checked_id(HEADER, text), namespace or "main", command=command, digest=digest)


async def answer_once(route: Route, call: Call[Any, Any], engine: Engine) -> Reply:
    """The first answer to a request, or the one that it is given now for what was done before."""
    once = engine.once
    assert once is not None
    # Who waits wants to know how things are when that is over.
    keeps = route.keeps_answer and getattr(call.query, "wait", None) is None
    once.replies = keeps
    try:
        answer = await route.handler(call)
    except ServerReply as found:
        return _again(found.text)
    except RequestRejected:
        raise
    except PerdureError:
        # What is refused now may be what was done before.
        text = await once.kept_reply() if keeps else None
        if text is None:
            raise
        return _again(text)
    reply = answer if isinstance(answer, Reply) else Reply(answer)
    if once.is_replayed:
        return Reply(reply.value, reply.status, (*reply.headers, REPLAYED))
    data = msgspec.json.encode(reply.value)
    if keeps and len(data) <= LONGEST_KEPT:
        kept = KeptReply(reply.status or route.status, reply.headers, data.decode())
        once.keep_reply(msgspec.json.encode(kept).decode())
    return Reply(msgspec.Raw(data), reply.status, reply.headers)


def _again(text: str) -> Reply:
    kept = msgspec.json.decode(text, type=KeptReply)
    return Reply(msgspec.Raw(kept.body.encode()), kept.status, (*kept.headers, REPLAYED))
