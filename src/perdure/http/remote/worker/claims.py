"""Claims over a server: runs are taken, read and brought to life.

In:   the names of what there is code for, room.
Out:  owned runs, handed to the host with their past.
"""

import logging
from functools import partial

import msgspec

from perdure.engine.leasing.claims import owned_from
from perdure.errors import LeaseLost, PerdureError, RunNotOwned
from perdure.http.remote.worker.handed import WireInbox, WireRun, WireRuns, loaded_run, message_in
from perdure.http.remote.worker.lease import ServerLease

log = logging.getLogger("perdure.worker")

PAGE = 500


class ClaimerOverHttp:
    """Takes runs from a server; the Claimer of an engine."""

    def __init__(self, lease: ServerLease) -> None:
        self._lease = lease
        self._next_wake: int | None = None
        # Whether the answer to a claim was lost: then the worker owns what it does not hold.
        self._is_in_doubt = False

    async def claim(
        self, namespace: str, queues: tuple[str, ...], workflows: tuple[str, ...], limit: int, suspects: int
    ) -> list[str]:
        """Take ripe runs, at most so many suspects among them, and hand them to the host; answers their ids."""
        lease = self._lease
        if not lease.is_held:
            # It registers anew, and looks around then; what it has under that lease is nothing.
            self._is_in_doubt = False
            return []
        tenure = lease.tenure
        lease.claims += 1
        try:
            if workflows != lease.names:
                await lease.tell(workflows)
            holding = list(lease.keys) if self._is_in_doubt else None
            # Until what was taken is held: an answer may be lost, or one of the runs meanwhile.
            self._is_in_doubt = True
            body = {"limit": limit, "owner": True, "suspects": suspects, "holding": holding}
            found = msgspec.json.decode(await lease.post("claim-runs", body), type=WireRuns)
            lease.answered()
            self._next_wake = found.next_wake
            for run in found.runs:
                await self._bring_to_life(run, tenure)
            self._is_in_doubt = False
        except LeaseLost:
            lease.lost(tenure)
            return []
        finally:
            lease.claims -= 1
            if not lease.claims:
                lease.early.clear()
        return [run.run_id for run in found.runs]

    async def _bring_to_life(self, run: WireRun, tenure: object, *, has_begun: bool | None = None) -> None:
        lease, events, page = self._lease, list(run.events), run
        while page.more:
            data = await lease.get("runs", run.run_id, after=_last_seq(events), owner="true")
            page = msgspec.json.decode(data, type=WireRun)
            events += page.events
        host = lease.host
        if tenure is not lease.tenure or host is None:
            return
        loaded = loaded_run(run, events, lease.worker_id)
        owned = owned_from(loaded)
        owned.tenure = lease.tenure
        owned.has_begun_before = run.detail.has_begun_before if has_begun is None else has_begun
        lease.keys[run.run_id] = bytes.fromhex(run.token_key)
        try:
            host.adopt(owned, loaded)
        except Exception as error:
            log.exception("a run could not be brought to life", extra={"event": "adopt_failed"})
            host.broken(owned.run_id, f"{type(error).__name__}: {error}")
        for each in lease.early.pop(run.run_id, ()):
            lease.notice(each)

    async def load(self, run_id: str) -> None:
        """Bring a run of ours to life as the server has it; one that is not ours any more is left alone."""
        lease = self._lease
        tenure = lease.tenure
        lease.claims += 1
        try:
            data = await lease.patiently(partial(lease.get, "runs", run_id, owner="true"))
            await self._bring_to_life(msgspec.json.decode(data, type=WireRun), tenure, has_begun=True)
        except RunNotOwned:
            lease.keys.pop(run_id, None)
        finally:
            lease.claims -= 1

    async def claim_one(self, namespace: str, run_id: str, workflows: tuple[str, ...]) -> bool:
        """Who is called for one run works beside the database."""
        raise PerdureError("a worker over a server takes runs as they come; open the database itself")

    async def next_wake(
        self,
        namespace: str,
        queues: tuple[str, ...],
        workflows: tuple[str, ...],
        *,
        suspects: bool = False,
    ) -> int | None:
        """When the next free run becomes ripe, as the last claim was told."""
        return self._next_wake

    def is_worked(self, namespace: str, queue: str) -> bool:
        """Whether a worker works this queue is known to the server."""
        return True

    def has_code(self, namespace: str, queue: str, workflow: str) -> bool:
        """Whether a worker has this workflow is known to the server."""
        return True

    async def tell_missing(self, namespace: str, queues: tuple[str, ...]) -> None:
        """The server tells of free runs that nobody has the code of."""

    async def free_mismatches(self, namespace: str, queues: tuple[str, ...], workflows: tuple[str, ...]) -> None:
        """Give runs of these queues that are held for a mismatch another try; the code may be back."""
        await self._lease.announce(retry_mismatches=workflows)

    async def read_messages_of(self, run_id: str, after: int = 0) -> None:
        """Tell the host what is unread in one run's inbox after a number."""
        lease = self._lease
        tenure, is_last = lease.tenure, False
        while not is_last and tenure is lease.tenure and lease.host is not None:
            try:
                data = await lease.patiently(partial(lease.get, "runs", run_id, "messages", after=after))
            except RunNotOwned:
                return
            page = msgspec.json.decode(data, type=WireInbox)
            messages = [message_in(each) for each in page.messages]
            is_last = len(messages) < PAGE
            after = messages[-1].number if messages else after
            if tenure is lease.tenure and lease.host.is_live(run_id):
                lease.host.notice_unread(run_id, messages, page.had if is_last else None)


def _last_seq(events: list[msgspec.Raw]) -> int:
    return int(msgspec.json.decode(events[-1])["seq"])
