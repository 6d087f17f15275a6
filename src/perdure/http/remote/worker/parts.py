"""The parts of an engine that a worker over a server needs, given to each other."""

from collections.abc import Sequence
from typing import Any

import msgspec

from perdure.clock import Clock, ToldTime
from perdure.engine.ports import ActivityCode, AnnouncedWorkflow, Host, OwnedRun, Tenure, Transacted
from perdure.errors import BadOption
from perdure.http.remote.connection import Connection
from perdure.http.remote.views import RemoteViews
from perdure.http.remote.worker.claims import ClaimerOverHttp
from perdure.http.remote.worker.handed import WireNews
from perdure.http.remote.worker.lease import ServerLease
from perdure.http.remote.worker.owner import OutputsOverHttp, OwnerOverHttp
from perdure.http.remote.worker.rows import HolderRows
from perdure.http.remote.worker.writes import RunAnswer, WorkerWrites
from perdure.stores.answers import Undone

NO_TRANSACTION = "the activity {} is transactional, and a server lends no connection; open the database itself"


class AdvanceAnswer(msgspec.Struct, frozen=True):
    """What became of a request for many runs, and what has come for any."""

    answers: list[RunAnswer]
    news: WireNews | None = None


class WorkerParts:
    """A worker over a server."""

    def __init__(self, connection: Connection, clock: Clock, told: ToldTime | None) -> None:
        self.lease = lease = ServerLease(connection, clock, told)
        self.writes = writes = WorkerWrites(self, clock)
        self.reader = rows = HolderRows(RemoteViews(connection))
        self.owner = OwnerOverHttp(lease, writes, clock, rows)
        self.outputs = OutputsOverHttp(lease, writes, clock)
        self.claimer = ClaimerOverHttp(lease)
        self.announcements = AnnouncementsOverHttp(lease)
        self.transactor = NoTransactor()
        lease.on_lost = writes.drop

    # What writes ask for

    @property
    def host(self) -> Host | None:
        return self.lease.host

    @property
    def tenure(self) -> Tenure:
        return self.lease.tenure

    async def advance(self, parts: list[bytes]) -> list[RunAnswer]:
        """Tell the server what runs want; LeaseLost, StoreUnavailable."""
        lease = self.lease
        tenure = lease.tenure
        runs = msgspec.Raw(b"[" + b",".join(parts) + b"]")
        data = await lease.post("advance", {"runs": runs, "after": lease.after})
        answer = msgspec.json.decode(data, type=AdvanceAnswer)
        lease.answered()
        if answer.news is not None and tenure is lease.tenure:
            # Before what follows the answers: a run that is to be paused begins nothing more.
            lease.take_in(answer.news)
        return answer.answers

    def is_over(self) -> bool:
        """Whether the lease is over, as far as is known here."""
        return self.lease.is_over()

    def lost(self, tenure: Tenure) -> None:
        """Nothing of what was given under this is ours any more."""
        self.lease.lost(tenure)

    def let_go(self, run_id: str) -> None:
        """A run is not this worker's any more."""
        self.lease.keys.pop(run_id, None)

    def load_again(self, run_id: str) -> None:
        """What is known of a run here is not what the server has."""
        self.lease.background.spawn(self.claimer.load(run_id))

    # Between opening and closing

    async def settle(self, patience_ms: int) -> None:
        """Until everything asked for is written; while the server is away, not for longer than this."""
        if self.writes.is_stalled:
            await self.lease.background.stall(patience_ms)
        if not self.writes.is_stalled:
            await self.writes.idle()

    async def close(self) -> None:
        """Hand everything back."""
        if self.lease.host is not None:
            self.writes.cancel()
            await self.lease.close()

    def abandon(self) -> None:
        """Stop at once and say nothing more, as if the process had died."""
        self.writes.cancel()
        self.lease.cancel()

    @property
    def is_idle(self) -> bool:
        return self.writes.is_idle and self.lease.background.is_idle

    @property
    def is_stalled(self) -> bool:
        return self.writes.is_stalled or self.lease.background.is_stalled


class AnnouncementsOverHttp:
    """Tells the server of workflows; of the Announcements of an engine what a worker needs."""

    def __init__(self, lease: ServerLease) -> None:
        self._lease = lease

    async def announce(self, namespace: str, workflows: Sequence[AnnouncedWorkflow]) -> None:
        """Let others know of these."""
        described = {each.name: _described(each) for each in workflows}
        await self._lease.announce(workflows=described)


def _described(workflow: AnnouncedWorkflow) -> dict[str, Any]:
    parameters = [
        {
            "name": each.name,
            "schema": each.schema,
            "takes": each.takes,
            **({} if each.default is None else {"default": msgspec.Raw(each.default.encode())}),
        }
        for each in workflow.parameters
    ]
    return {"parameters": parameters, "about": workflow.about, "channels": workflow.channels}


class NoTransactor:
    """There is no connection to the database that an activity could be lent."""

    is_alone = False

    def connection_type(self, *, is_async: bool) -> str | None:
        """None is lent."""
        return None

    def refusal(self, activity: str, *, is_async: bool) -> str:
        """Why such an activity cannot run here."""
        return NO_TRANSACTION.format(repr(activity))

    async def run(self, owned: OwnedRun, code: ActivityCode) -> Transacted:
        """Refused."""
        return Undone(BadOption(NO_TRANSACTION.format(repr(code.activity))))

    async def calm(self) -> None:
        """No transaction is ever under way."""
