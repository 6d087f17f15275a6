"""Deferreds: values that come from outside once, and that a workflow waits for."""

import asyncio
from typing import TypeVar, cast

from perdure.authoring.channels import Channel
from perdure.authoring.durations import Duration, seconds
from perdure.authoring.runtime import answered, required

T = TypeVar("T")


class Deferred(Channel[T]):
    """A named value that a run gets once, from outside: `Deferred("approval", Decision)`.

    It may be resolved before or after the workflow waits for it, with `run.resolve(...)` or, by anybody who has its
    token, with `app.resolve(...)`. Every wait of the run gets the same value.
    """

    what = "deferred"

    def token(self) -> str:
        """A text by which this deferred of this run can be resolved; safe in a URL, the same one every time."""
        return required(f"the token of the deferred {self.name!r}", "call token() in the workflow").token(self.name)

    async def wait(self, timeout: Duration | None = None) -> T:
        """The value; TimeoutError when none came in time, DeferredFailed when an error came instead.

        After a TimeoutError another wait may still get it.
        """
        runtime = required(f"waiting for the deferred {self.name!r}", "resolve it from outside with `run.resolve(...)`")
        if timeout is None:
            return cast("T", await answered(runtime.calls["deferred"](runtime, self)))
        # A value that is there already comes before any timer; so even 0 looks into the inbox.
        try:
            async with asyncio.timeout(max(seconds(timeout, "timeout"), 0.001)) as limit:
                return cast("T", await answered(runtime.calls["deferred"](runtime, self)))
        except TimeoutError:
            if not limit.expired():
                raise
            raise TimeoutError(f"the deferred {self.name!r} was not resolved within {timeout}") from None
