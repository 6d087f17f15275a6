"""Runs that nobody works: told to the caller who starts one or waits for it, for nothing else would tell.

In:   the URL, and a run as it stands.
Out:  a sentence for each queue it needs, its own or that of an activity it waits for, that no living worker works.
"""

from collections.abc import Callable

from perdure.clock import elapsed
from perdure.diagnostics.findings import Hint, command
from perdure.diagnostics.runs import DEFAULT_QUEUE
from perdure.errors import StoreError
from perdure.stores.health import WorkerSeen
from perdure.stores.sqlite.checks import health
from perdure.stores.urls import file_of, is_postgres
from perdure.views.run import RunInfo

# How often one who waits asks again.
ASK_SECONDS = 5.0
UNKNOWN = "MODULE"


async def unworked(
    url: str, info: RunInfo, module: str = UNKNOWN, own: frozenset[str] = frozenset(), hint: Hint = command
) -> dict[str, str]:
    """A sentence for each queue that an open run needs and nobody works; those of its `own` see to themselves."""
    wanted = needed(info) - own
    workers = await living(url, info.namespace) if wanted else None
    if workers is None:
        return {}
    worked = {queue for each in workers for queue in each.queues}
    others = sorted(worked - own)
    told = {queue: _sentence(info, queue, others, module, hint) for queue in sorted(wanted - worked)}
    # A worker works it, but has not the code.
    return told | {
        wait.queue: f"{wait.name}: {wait.reason}"
        for wait in info.waiting_for
        if wait.reason is not None and wait.queue in wanted & worked
    }


async def living(url: str, namespace: str) -> list[WorkerSeen] | None:
    """The workers of a namespace that are alive; None where nobody else can be seen, or the database not be asked."""
    if not is_postgres(url) and file_of(url) is None:
        return None
    try:
        return [each for each in await _workers(url) if _is_fit(each, url, namespace)]
    except StoreError:
        # It is there to help; that the database cannot be asked is told by those who cannot do without.
        return None


def needed(info: RunInfo) -> set[str]:
    """The queues that must be worked so that the run goes on."""
    if info.closed_at is not None or info.held is not None:
        return set()
    return {info.queue, *(wait.queue for wait in info.waiting_for if wait.queue is not None)}


class UnworkedQueues:
    """Asks now and then whether a worker works what a run waits for; says once of each queue that nobody does."""

    def __init__(
        self, url: str, module: str = UNKNOWN, own: frozenset[str] = frozenset(), hint: Hint = command
    ) -> None:
        self._hint = hint
        self._url = url
        self._module = module
        self._own = own
        self._asked: set[str] = set()
        self._told: set[str] = set()
        self._ask_at = 0.0
        self._rest_until = 0.0

    async def look(self, info: RunInfo, say: Callable[[str], None]) -> None:
        """Ask when the run needs a queue that it did not need before, or when it was not asked for long."""
        wanted, now = needed(info) - self._own - self._told, elapsed()
        if now < self._rest_until or not wanted or (now < self._ask_at and wanted <= self._asked):
            return
        self._asked, self._ask_at = wanted, now + ASK_SECONDS
        for queue, text in (await unworked(self._url, info, self._module, self._own, self._hint)).items():
            if queue in wanted:
                self._told.add(queue)
                say(text)

    def rest(self) -> None:
        """After an outage workers get some time to come back."""
        self._rest_until = elapsed() + ASK_SECONDS


def _is_fit(worker: WorkerSeen, url: str, namespace: str) -> bool:
    # On Postgres a worker without a lock may be one behind a pooler; in a file it is none.
    fit = {True, None} if is_postgres(url) else {True}
    return worker.is_alive in fit and worker.namespace == namespace


def _sentence(info: RunInfo, queue: str, others: list[str], module: str, hint: Hint) -> str:
    """That nobody works the queue, and what helps."""
    if queue == info.queue == DEFAULT_QUEUE:
        return f"no worker is alive that could take the run; start one with `{hint('worker', module)}`"
    what = "the run is" if queue == info.queue else "the run waits for an activity"
    alive = f" (those alive work {', '.join(others)})" if others else ""
    start = hint("worker", module, "--queue", queue)
    return f"{what} on the queue {queue}, which no living worker works{alive}; start one with `{start}`"


async def _workers(url: str) -> tuple[WorkerSeen, ...]:
    if is_postgres(url):
        from perdure.stores.postgres.checks.inspection import workers_of  # noqa: PLC0415 - its driver is an extra

        return await workers_of(url)
    path = file_of(url)
    return () if path is None else health.workers_of(path)
