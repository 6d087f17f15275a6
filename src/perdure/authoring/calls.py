"""Plain calls of workflow code: time, waiting and chance that replay the same."""

import asyncio
import random
import uuid
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import TypeVar, cast, overload

from perdure.authoring.durations import Duration, seconds
from perdure.authoring.runtime import answered, required

T = TypeVar("T")


async def sleep(duration: Duration) -> None:
    """Wait; in a workflow durably, however often the process is restarted meanwhile."""
    await asyncio.sleep(seconds(duration, "the duration of sleep()"))


def now() -> datetime:
    """The time of the event the workflow is handling, in UTC."""
    runtime = required("now()", "use datetime.now(UTC) elsewhere")
    return datetime.fromtimestamp(runtime.now() / 1000, UTC)


def rng() -> random.Random:
    """The run's own random numbers; the same ones on every replay."""
    return required("rng()", "use the random module elsewhere").rng()


def uuid4() -> uuid.UUID:
    """A random UUID; the same one on every replay."""
    runtime = required("uuid4()", "use uuid.uuid4() elsewhere")
    return uuid.UUID(int=runtime.rng().getrandbits(128), version=4)


@overload
async def side_effect(fn: Callable[[], Awaitable[T]], /) -> T: ...
@overload
async def side_effect(fn: Callable[[], T], /) -> T: ...
async def side_effect(fn: Callable[[], object], /) -> object:
    """Call a small function once and record what it returned; a replay gets the record.

    For anything that can fail or take long, use an activity.
    """
    runtime = required("side_effect()", "just call the function elsewhere")
    return cast("object", await answered(runtime.record(fn)))
