"""A subscriber in a simulation: it follows all runs, dies with its process, and goes on after its cursor in another.

In:   runs as they are on disk.
Out:  a request that is made again and again; which runs it was not told of as they stand.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from perdure.app import Perdure
from perdure.engine.subscriptions import subscriptions
from perdure.errors import CursorExpired
from tests.simulation.clients import Request
from tests.simulation.sight import SeenRun

# It is told within this time once nothing changes any more, also when it has to begin anew.
LATE_MS = 180_000


class FollowRuns(Request):
    """Follow all runs, and be told in the end how each of them stands that was open at the first word or came later."""

    def __init__(self, after_step: int, runs: Callable[[], Mapping[str, SeenRun]]) -> None:
        super().__init__("all", after_step)
        self._runs = runs
        self._cursor: str | None = None
        self._told: dict[str, tuple[str, str | None]] = {}
        # Those that had ended before anything was told; None until then.
        self._ended_before: set[str] | None = None
        # How often it went on after a cursor, and how often that was too old.
        self.went_on = 0
        self.expired = 0

    async def ask(self, app: Perdure) -> None:
        self.went_on += self._cursor is not None
        while True:
            try:
                async for change in app.subscribe(after=self._cursor):
                    if self._ended_before is None:
                        self._ended_before = {run.run_id for run in self._runs().values() if run.closed_at is not None}
                    self._told[change.run.run_id] = (change.run.status.value, change.run.held)
                    self._cursor = change.cursor
            except CursorExpired:
                self.expired += 1
                self._cursor, self._ended_before, self._told = None, None, {}

    def missed(self) -> list[str]:
        """The runs whose state it does not know, though it should; activities on queues are not followed."""
        if self._ended_before is None:
            return []
        return [
            run.run_id
            for run in self._runs().values()
            if not run.is_task
            and (run.run_id in self._told or run.run_id not in self._ended_before)
            and self._told.get(run.run_id) != (run.status, run.held)
        ]


@contextmanager
def rare_looks() -> Iterator[None]:
    """A look every few seconds, so that schedules do not consist of looks."""
    was = subscriptions.LOOK_MS
    subscriptions.LOOK_MS = 2000
    try:
        yield
    finally:
        subscriptions.LOOK_MS = was
