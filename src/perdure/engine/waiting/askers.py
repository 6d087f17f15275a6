"""Askers: callers that have asked a run something and wait for its answer.

In:   answers and ends that this process has written; looks at the database for runs that live elsewhere.
Out:  the answer of each request, to every caller that waits for it, once it is on disk.
"""

import asyncio
from collections.abc import Callable, Iterable
from itertools import chain, islice

from perdure.engine.leasing.lease import Lease
from perdure.errors import NotOpen
from perdure.kernel.requests import LeftUnanswered, RequestAnswer
from perdure.stores import rows
from perdure.stores.port import Store

# So many requests are looked at in one question.
BITE = 1000


class Asker:
    """One caller that waits; `number` is that of its message, None as long as that is not on disk."""

    def __init__(self, run_id: str, message_id: str) -> None:
        self.run_id = run_id
        self.message_id = message_id
        self.number: int | None = None
        self.answer: asyncio.Future[RequestAnswer] = asyncio.get_running_loop().create_future()

    def tell(self, answer: RequestAnswer) -> None:
        if not self.answer.done():
            self.answer.set_result(answer)


class Askers:
    """Knows who waits for which answer."""

    def __init__(self, store: Store, lease: Lease) -> None:
        self._store = store
        self._lease = lease
        # Of each run the callers by the id of their message; many may ask at once, and few of them the same.
        self.by_run: dict[str, dict[str, list[Asker]]] = {}
        # Runs that came to live here: what another process had answered before that is to be looked at once.
        self._came: set[str] = set()
        # Look at the database at once; what watches it says how.
        self.look_soon: Callable[[], None] = lambda: None

    def come(self, run_id: str, message_id: str) -> Asker:
        """A caller begins to wait, before its message is sent, so that no answer is missed."""
        asker = Asker(run_id, message_id)
        self.by_run.setdefault(run_id, {}).setdefault(message_id, []).append(asker)
        return asker

    def leave(self, asker: Asker) -> None:
        """The caller waits no longer."""
        by_message = self.by_run.get(asker.run_id, {})
        askers = by_message.get(asker.message_id, [])
        if asker in askers:
            askers.remove(asker)
        if not askers:
            by_message.pop(asker.message_id, None)
        if not by_message:
            self.by_run.pop(asker.run_id, None)

    def tell(self, run_id: str, message_id: str, answer: RequestAnswer) -> None:
        """The answer of a run of this process is on disk."""
        for asker in self.by_run.get(run_id, {}).get(message_id, ()):
            asker.tell(answer)

    def ended(self, run_id: str) -> None:
        """A run has ended, or goes on as another one: what it left unanswered is found by a look."""
        if run_id in self.by_run:
            self.look_soon()

    def came_here(self, run_ids: Iterable[str]) -> None:
        """Runs live here from now on; who answered before that may not have told anybody."""
        came = self.by_run.keys() & run_ids
        if came:
            self._came |= came
            self.look_soon()

    async def look(self) -> None:
        """Look at the requests whose runs do not live here, or have come here since the last look."""
        host = self._lease.host
        came = set(self._came)
        waiting = [
            asker
            for run_id, by_message in self.by_run.items()
            if host is None or run_id in came or not host.is_live(run_id)
            for asker in chain.from_iterable(by_message.values())
            if asker.number is not None and not asker.answer.done()
        ]
        for first in range(0, len(waiting), BITE):
            await self.look_at(*islice(waiting, first, first + BITE))
        # Only now: a look that fails is made again.
        self._came -= came

    async def look_at(self, *askers: Asker) -> None:
        """Tell these what became of their requests, as far as the database knows."""
        numbers = sorted({asker.number for asker in askers if asker.number is not None})
        found = {row.number: row for row in await self._store.reads.channels.answers(numbers)}
        for asker in askers:
            row = found.get(asker.number or 0)
            if row is not None and row.answer is not None:
                asker.tell(rows.answer_of(row.answer))
            elif row is None or row.has_ended:
                asker.tell(LeftUnanswered())

    def close(self) -> None:
        """Tell everybody that nothing is waited for any more."""
        by_messages = [each for by_message in self.by_run.values() for each in by_message.values()]
        for asker in list(chain.from_iterable(by_messages)):
            if not asker.answer.done():
                asker.answer.set_exception(NotOpen())
                # The one that waited may be gone by now; nobody needs to be told of that.
                asker.answer.exception()
