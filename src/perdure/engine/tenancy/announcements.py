"""Workflows that workers have announced, kept in a store.

In:   what a worker has, as it begins.
Out:  rows of those that are new or other than before; what was announced, for who has no code.
"""

import hashlib
from collections.abc import Sequence

import msgspec

from perdure.clock import Clock
from perdure.engine.committer import Committer
from perdure.engine.ports.announcements import AnnouncedWorkflow
from perdure.stores.operations import AnnounceWorkflow
from perdure.stores.port import Store

DIGEST_BYTES = 12


class StoreAnnouncements:
    """What workers have announced; the Announcements of an engine."""

    def __init__(self, store: Store, committer: Committer, clock: Clock) -> None:
        self._reads = store.reads.announcements
        self._committer = committer
        self._clock = clock

    async def announce(self, namespace: str, workflows: Sequence[AnnouncedWorkflow]) -> None:
        """Write those that are new or other than before; most workers write nothing."""
        known = await self._reads.digests(namespace)
        written = [(each.name, msgspec.json.encode(each)) for each in workflows]
        now = self._clock.now()
        news = [
            AnnounceWorkflow(namespace, name, body.decode(), digest, now)
            for name, body in written
            if known.get(name) != (digest := _digest(body))
        ]
        if news:
            await self._committer.apply(*news)

    async def get(self, namespace: str, name: str) -> AnnouncedWorkflow | None:
        """The workflow of this name; of one that cannot be read here, the name alone."""
        body = await self._reads.body(namespace, name)
        try:
            return None if body is None else msgspec.json.decode(body, type=AnnouncedWorkflow)
        except msgspec.MsgspecError:
            return AnnouncedWorkflow(name)

    async def names(self, namespace: str) -> tuple[str, ...]:
        """All that were announced."""
        return tuple(sorted(await self._reads.digests(namespace)))


def _digest(body: bytes) -> str:
    return hashlib.blake2b(body, digest_size=DIGEST_BYTES).hexdigest()
