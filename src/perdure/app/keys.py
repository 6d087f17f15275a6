"""Idempotency keys of callers: checked before anything is asked under them."""

import asyncio
import copy
from collections.abc import Sequence
from typing import Any

from perdure.authoring.durations import Duration, seconds
from perdure.engine.ports import CommandKey
from perdure.errors import BadOption
from perdure.ids import checked_id

DAY, TEN_MINUTES = 86_400.0, 600.0


def command_key(namespace: str, key: str, keep: Duration, stale_after: Duration) -> CommandKey:
    """A key as the engine takes it; BadId, BadOption."""
    keep_ms, stale_ms = round(seconds(keep, "keep") * 1000), round(seconds(stale_after, "stale_after") * 1000)
    if keep_ms < 1 or stale_ms < 1:
        raise BadOption("keep and stale_after are longer than a millisecond")
    return CommandKey(checked_id("idempotency key", key), namespace, keep_ms, stale_ms)


async def start_each(app: Any, wanted: Sequence[tuple[Any, Any]]) -> list[Any]:
    """Start many runs under one key: each has a part of it by its place among them."""

    async def start(number: int, workflow: Any, arguments: Any) -> Any:
        twin = copy.copy(app)
        twin._engine = app._engine.once.numbered(number)
        return await twin._start_or_error(workflow, arguments)

    return await asyncio.gather(*(start(number, *call) for number, call in enumerate(wanted)))
