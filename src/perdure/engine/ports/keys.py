"""Idempotency keys: what is asked of an engine under one is done once."""

from collections.abc import Awaitable, Callable
from typing import Any, Protocol, TypeAlias

import msgspec

from perdure.engine.ports.owned_run import OwnedRun, StartRequest
from perdure.stores.records import RunRow

KEEP_MS = 24 * 60 * 60 * 1000
STALE_MS = 600 * 1000


class CommandKey(msgspec.Struct, frozen=True):
    """A key, for how long what was answered under it is kept, and after how long a caller that has died is one.

    `command` and `digest` say what is asked and with what, where the caller knows that better than the engine.
    """

    text: str
    namespace: str
    keep_ms: int = KEEP_MS
    stale_ms: int = STALE_MS
    command: str | None = None
    digest: str | None = None


class KeptRun(msgspec.Struct, frozen=True):
    """A run that was started under a key before; `is_new` says that it was not there already then."""

    run_id: str
    workflow_id: str
    workflow: str
    is_new: bool = True


class ServerReply(Exception):  # noqa: N818 - no trouble, it is told what was answered
    """What was asked was done before, and this is what a server answered then."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text


StartedRun: TypeAlias = RunRow | OwnedRun | KeptRun


class Once(Protocol):
    """What is asked under a key: of an engine that is given one."""

    # Whether what was done before is answered with what a server said then, by ServerReply.
    replies: bool

    @property
    def is_replayed(self) -> bool:
        """Whether something was answered that had been done before."""

    def keep_reply(self, text: str) -> None:
        """Keep what a server answers, beside what was done; not waited for."""

    async def kept_reply(self) -> str | None:
        """What a server answered under the key; KeyConflict when that was to something else."""

    async def start(
        self, request: StartRequest, within: object, begin: Callable[[Any], Awaitable[StartedRun]]
    ) -> StartedRun:
        """Start a run once, by this function of an engine."""

    def about(self, *given: object) -> Any:
        """The engine for a command with these arguments, which it cannot tell from what it gets itself."""

    def numbered(self, number: int) -> Any:
        """The engine for one of the commands that are asked together under the key."""
