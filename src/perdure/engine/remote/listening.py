"""Remote workers that listen: told when something has come for their runs, or there is something to claim.

In:   what a worker has heard so far.
Out:  what is new, as soon as it is there; what the worker has code for, in its row.
"""

from collections.abc import Sequence

from perdure.clock import Clock
from perdure.engine.committer import refusal_of
from perdure.engine.ports import AnnouncedWorkflow, Announcements, RemoteWorker
from perdure.engine.ports.remote_runs import RemoteRuns, WorkerNews
from perdure.engine.remote.sessions import WorkerSessions
from perdure.engine.remote.waiting import LOOK_AGAIN_MS, WorkWaiters
from perdure.errors import RunNotOwned
from perdure.stores.answers import Applied
from perdure.stores.operations import NoteWorkflows
from perdure.stores.port import Store
from perdure.stores.records import UNREAD_PAGE, UnreadPage


class StoreRemoteListening:
    """What remote workers hear; the RemoteListening of an engine."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        sessions: WorkerSessions,
        waiters: WorkWaiters,
        runs: RemoteRuns,
        announcements: Announcements,
    ) -> None:
        self._store = store
        self._clock = clock
        self._sessions = sessions
        self._waiters = waiters
        self._runs = runs
        self._announcements = announcements

    async def hear(self, worker: RemoteWorker, after: int, seen: int, *, waits: bool) -> WorkerNews:
        """What has come for its runs since, or that there may be more to claim, as soon as there is; LeaseLost.

        What becomes ripe by the clock is not told: a claim says when.
        """
        with self._waiters.one_more() as waiter:
            await self._sessions.find(worker)
            while True:
                count = self._waiters.counted()
                news = await self._runs.news(worker, after)
                if self._waiters.is_known(seen):
                    if news.messages or not waits or count != seen:
                        return WorkerNews(news.after, news.messages, count)
                    await waiter.wait_for_word()
                elif news.messages or not waits:
                    return WorkerNews(news.after, news.messages, seen)
                else:
                    # It was at another server: what it has missed here cannot be told, but is not asked at every call.
                    await waiter.wait(LOOK_AGAIN_MS)
                    seen = 0

    async def announce(
        self, worker: RemoteWorker, names: Sequence[str] | None, workflows: Sequence[AnnouncedWorkflow]
    ) -> tuple[str, ...]:
        """Let its row say what it has code for by now, and others know of its workflows; its queues. LeaseLost."""
        session = await self._sessions.find(worker)
        if names is not None:
            answer = await session.write(NoteWorkflows(worker.worker_id, tuple(names)))
            if not isinstance(answer, Applied):
                raise refusal_of(answer, self._store.url)
        if workflows:
            await self._announcements.announce(worker.namespace, workflows)
        return session.queues

    async def unread(self, worker: RemoteWorker, run_id: str, after: int) -> UnreadPage:
        """What one of its runs has not read, after a number; RunNotOwned."""
        await self._sessions.find(worker)
        row = await self._store.reads.run(worker.namespace, run_id)
        if row is None or row.owner != worker.worker_id:
            raise RunNotOwned(run_id, worker.worker_id)
        return await self._store.reads.unread_page(run_id, after, UNREAD_PAGE)
