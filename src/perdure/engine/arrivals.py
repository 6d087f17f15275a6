"""Arrivals: messages that come for runs of this process.

In:   messages that were written here, or found in the database.
Out:  the host of a run is told of them, in the order of its inbox; of a run that does not live yet, a moment later.
"""

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TypeAlias, TypeVar

from perdure.clock import Clock
from perdure.engine.background import Background
from perdure.engine.leasing.lease import Lease
from perdure.engine.outages import Outage
from perdure.engine.ports import Host
from perdure.errors import RunUnreadable, StoreUnavailable
from perdure.kernel.messages import Message
from perdure.kernel.status import OPEN
from perdure.stores.port import Store
from perdure.stores.records import UNREAD_PAGE, RunFilter, UnreadPage

CHILDREN_PAGE = 500
READ_AGAIN_MS = 500

T = TypeVar("T")

# What came for a run before it lived: a message, and the how-many-th of its run that is, if that is known.
Arrival: TypeAlias = tuple[Message, int | None] | RunUnreadable


class Arrivals:
    """Tells the host what has come for runs that live here, or are about to."""

    def __init__(self, store: Store, clock: Clock, lease: Lease, background: Background) -> None:
        self._store = store
        self._lease = lease
        self._background = background
        # Runs of ours that do not live yet, started or being read, and what came for them meanwhile.
        self.early: dict[str, list[Arrival]] = {}
        self._outage = Outage(
            clock, "load_failed", "own runs cannot be read, will try again", "own runs can be read again"
        )

    def notice(self, run_id: str, message: Message, count: int | None) -> None:
        """Pass a message on to the run's host; to a run that does not live yet, a moment later."""
        host = self._lease.host
        if run_id in self.early:
            self.early[run_id].append((message, count))
        elif host is not None and not host.notice(run_id, message, count):
            host.look_around()

    def notice_unreadable(self, error: RunUnreadable) -> None:
        """Something that came for a run of ours cannot be read; it is held, for nothing after that may be taken."""
        if error.run_id in self.early:
            self.early[error.run_id].append(error)
        elif self._lease.host is not None:
            self._lease.host.unreadable(error)

    def look_around(self) -> None:
        """Let the worker of this process, if there is one, look for runs to claim."""
        if self._lease.host is not None:
            self._lease.host.look_around()

    async def read_messages_of(self, run_id: str, after: int = 0) -> None:
        """Notice what is unread in one run's inbox after a number, a page at a time."""
        tenure, is_last = self._lease.tenure, False
        while not is_last and tenure is self._lease.tenure and not self._background.is_closed:
            try:
                pages = await self.patiently(partial(self._unread_page, run_id, after), tenure)
            except RunUnreadable as error:
                self.notice_unreadable(error)
                return
            host = self._lease.host
            for messages, had in pages:
                is_last = len(messages) < UNREAD_PAGE
                after = messages[-1].number if messages else after
                if run_id in self.early:
                    self.early[run_id] += [(message, None) for message in messages]
                elif host is not None and host.is_live(run_id):
                    host.notice_unread(run_id, messages, had if is_last else None)
                elif host is not None:
                    host.look_around()
                    return

    async def _unread_page(self, run_id: str, after: int) -> list[UnreadPage]:
        return [await self._store.reads.unread_page(run_id, after, UNREAD_PAGE)]

    def tell_children(self, namespace: str, run_id: str) -> None:
        """A run has ended: let its children that live here read what came for them, soon."""
        if self._lease.host is not None:
            self._background.spawn(self.read_children(namespace, run_id))

    async def read_children(self, namespace: str, run_id: str) -> None:
        """Notice what came for the children of a run, as far as they live here."""
        after = None
        while True:
            wanted = RunFilter(namespace, tuple(OPEN), parent_id=run_id, before=after, limit=CHILDREN_PAGE)
            page = await self.patiently(partial(self._store.reads.list_runs, wanted), self._lease.tenure)
            for row in page:
                await self.read_if_here(row.run_id)
            if len(page) < CHILDREN_PAGE:
                return
            after = page[-1].run_id

    async def read_if_here(self, run_id: str) -> None:
        """Notice what came for a run that lives here, or is about to; any other may be free to claim."""
        host = self._lease.host
        if host is not None and (run_id in self.early or host.is_live(run_id)):
            await self.read_messages_of(run_id)
        elif host is not None:
            host.look_around()

    async def patiently(self, read: "Callable[[], Awaitable[list[T]]]", tenure: object) -> "list[T]":
        """Read what is ours until it can be read: no other process will bring these runs to life."""
        while tenure is self._lease.tenure and not self._background.is_closed:
            try:
                found = await read()
            except StoreUnavailable as error:
                self._outage.fails(error)
                await self._background.stall(READ_AGAIN_MS)
            else:
                self._outage.is_over()
                return found
        return []


def deliver(host: Host, run_id: str, early: Sequence[Arrival]) -> None:
    """Hand over what came for a run before it lived."""
    for arrival in early:
        if isinstance(arrival, RunUnreadable):
            host.unreadable(arrival)
        else:
            host.notice(run_id, *arrival)
