"""The client: starts runs, writes to them and stops them, owned here, elsewhere or by no worker.

In:   requests of callers in this process.
Out:  answers after the commit, or what speaks against it.
"""

from collections.abc import Callable
from functools import partial

import msgspec

from perdure.clock import Clock, pause
from perdure.engine.arrivals import Arrivals
from perdure.engine.background import Background
from perdure.engine.committer import Committer, Dropped, Settlement, refusal_of
from perdure.engine.groups import StartGroup
from perdure.engine.leasing.lease import Lease
from perdure.engine.ports import OwnedRun, StartRequest, secret_there
from perdure.engine.reads import StoreReader
from perdure.engine.starts import Starts
from perdure.engine.stopping import Stopping, first_of
from perdure.engine.waiting.waiters import Waiters
from perdure.errors import (
    AlreadyResolved,
    IdConflict,
    InboxFull,
    NotOpen,
    RunClosed,
    RunNotFound,
    RunNotHeld,
    RunUnreadable,
)
from perdure.ids import Ids
from perdure.kernel.messages import DeferredFailure, DeferredResult, Message, RequestSent, Sent, SignalSent
from perdure.kernel.requests import RequestAnswer
from perdure.kernel.status import OPEN, Status
from perdure.stores import rows
from perdure.stores.answers import APPLIED, Applied, Closed, Differs, Full, Missing, Moved, Posted, Taken
from perdure.stores.operations import PostDelayed, PostMessage, SetAttributes
from perdure.stores.port import Store
from perdure.stores.records import RunRow
from perdure.tokens import Meant, check, meant_by

# How long terminate() waits for an owner in another process.
OWNER_PATIENCE_MS = 5000
# As long a full inbox is taken for full without being counted again, which takes a while.
FULL_MS = 100


class StoreClient:
    """Does what callers of this process ask for; the Client of an engine."""

    def __init__(
        self,
        store: Store,
        committer: Committer,
        clock: Clock,
        ids: Ids,
        lease: Lease,
        starts: Starts,
        arrivals: Arrivals,
        reader: StoreReader,
        waiters: Waiters,
        stopping: Stopping,
        background: Background,
        max_unread: int,
    ) -> None:
        self._store = store
        self._committer = committer
        self._clock = clock
        self._ids = ids
        self._lease = lease
        self._starts = starts
        self._arrivals = arrivals
        self._reader = reader
        self._stopping = stopping
        self._background = background
        self._max_unread = max_unread
        # The runs whose inboxes were full, and until when that is believed.
        self._full: dict[str, int] = {}
        self._secret: bytes | None = None
        self._askers = waiters.askers
        self.wait = waiters.wait

    # Starting and posting

    async def start(self, namespace: str, request: StartRequest) -> RunRow | OwnedRun:
        """Start a run; when its workflow_id is taken, the run that has it."""
        if self._background.is_closed:
            raise NotOpen
        if self._committer.is_full:
            await self._committer.room()
        host = self._lease.host
        owned = self._starts.new_run(namespace, request, self._clock.latest())
        hosted = host is not None and not request.delay_ms and host.makes_room_for(request)
        operations = self._starts.insert(request, owned, hosted=hosted)
        group = StartGroup(operations, owned, host, self._arrivals, hosted=hosted)
        self._committer.submit(group)
        answer = await group.settled
        if answer is APPLIED:
            if host is None:
                owned.is_unclaimed = True
            return owned
        if isinstance(answer, Dropped):
            # The lease moved under it. Whether it was written is not known; this way it is safe to write again.
            again = self._starts.insert(request, owned, hosted=False)
            group = StartGroup(again, owned, host, self._arrivals, hosted=False)
            self._committer.submit(group)
            answer = await group.settled
        if isinstance(answer, Taken):
            return answer.run
        if isinstance(answer, Moved) and request.supersedes is not None:
            # Another caller was quicker, or the run does not make way yet: ask again who has the id.
            return await self.start(namespace, msgspec.structs.replace(request, supersedes=None))
        if not isinstance(answer, Applied):
            self._raise_refusal(answer, namespace, owned.workflow_id)
        return owned

    async def start_within(self, namespace: str, request: StartRequest, connection: object) -> RunRow | OwnedRun:
        """The same inside the transaction a connection of the caller's is in: there when that is committed."""
        if self._background.is_closed:
            raise NotOpen
        owned = self._starts.new_run(namespace, request, self._clock.latest())
        operations = self._starts.insert(request, owned, hosted=False)
        answer = await self._store.write_within(connection, operations)
        if isinstance(answer, Taken):
            return answer.run
        self._raise_refusal(answer, namespace, owned.workflow_id)
        return owned

    async def post(
        self,
        namespace: str,
        run_id: str,
        id: str,
        sent: Sent,
        message_id: str | None = None,
        *,
        within: object = None,
        to_heir: bool = False,
        delay_ms: int = 0,
    ) -> None:
        """Send a message; RunNotFound or RunClosed when nobody can ever receive it, InboxFull when nobody does now."""
        if delay_ms > 0 and isinstance(sent, SignalSent):
            sent = msgspec.structs.replace(sent, due_at=self._clock.latest() + delay_ms)
        try:
            post, posted = await self._send(namespace, run_id, id, sent, message_id, within)
        except RunClosed:
            heir = await self._reader.heir(namespace, run_id) if to_heir else None
            if heir is None:
                raise
            post, posted = await self._send(namespace, heir.run_id, id, sent, message_id, within)
        self._notice(post, posted, sent)

    async def ask(self, namespace: str, run_id: str, id: str, sent: RequestSent, message_id: str) -> RequestAnswer:
        """Send a request, and wait for its answer, on disk; the same message_id again gets the same answer."""
        askers = self._askers
        asker = askers.come(run_id, message_id)
        try:
            post, posted = await self._send(namespace, run_id, id, sent, message_id, None)
            if post.run_id != run_id:
                askers.leave(asker)
                asker = askers.come(post.run_id, message_id)
            asker.number = None if posted is None else posted.number
            self._notice(post, posted, sent)
            if posted is None or posted.count is None or post.run_id != run_id:
                # It may have been answered before.
                await askers.look_at(asker)
            return await asker.answer
        finally:
            askers.leave(asker)

    async def _send(
        self, namespace: str, run_id: str, id: str, sent: Sent, message_id: str | None, within: object
    ) -> tuple[PostMessage | PostDelayed, Posted | None]:
        """Put a message into the inbox of a run, or of the one that continues it."""
        if self._background.is_closed:
            raise NotOpen
        if within is None and self._committer.is_full:
            await self._committer.room()
        now = self._clock.now()
        # One with an id may have been taken before: then it is taken again, however full the inbox is.
        if within is None and self._full and message_id is None:
            self._refuse_if_full(run_id, id, now)
        message_id = message_id or self._ids.token()
        write = self._committer.apply if within is None else partial(self._write_within, within)
        post: PostMessage | PostDelayed
        post = PostMessage(run_id, message_id, type(sent).__name__, rows.message_body(sent), now, self._max_unread)
        if isinstance(sent, SignalSent) and sent.due_at is not None:
            post = PostDelayed(*post, sent.due_at)
        answer = await write(post)
        while isinstance(answer, Closed) and answer.status == Status.CONTINUED:
            post = post._replace(run_id=(await self._reader.newest(namespace, post.run_id)).run_id)
            answer = await write(post)
        if within is None and isinstance(answer, Full):
            self._full[post.run_id] = now + FULL_MS
        if isinstance(answer, Differs) and isinstance(sent, RequestSent):
            raise _asked_otherwise(id, sent.name, message_id)
        if isinstance(answer, Differs):
            raise AlreadyResolved(id, f"the deferred {sent.name!r}")
        self._raise_refusal(answer, namespace, id)
        posted = answer.value if within is None and isinstance(answer, Applied) else None
        return post, posted if isinstance(posted, Posted) else None

    def _notice(self, post: PostMessage | PostDelayed, posted: Posted | None, sent: Sent) -> None:
        """Let the run know at once, if it lives here."""
        if posted is not None and posted.count is not None:
            message = Message(posted.number, post.message_id, sent, post.at)
            self._arrivals.notice(post.run_id, message, posted.count)

    async def resolve_token(
        self, namespace: str, token: str, resolution: Callable[[str], DeferredResult | DeferredFailure], within: object
    ) -> None:
        """Resolve the deferred that a token is for, in its run or in the one that has its id by now."""
        run_id, name = await self.read_token(namespace, token)
        sent = resolution(name)
        try:
            await self.post(namespace, run_id, run_id, sent, f"deferred:{name}", within=within, to_heir=True)
        except (AlreadyResolved, RunClosed, InboxFull) as refused:
            # The run is told by the id that people know.
            row = await self._reader.read(namespace, run_id)
            raise type(refused)(row.workflow_id, *refused.args[1:]) from None

    async def read_token(self, namespace: str, token: str) -> Meant:
        """The run and the deferred that a token is for; BadToken, which says nothing of the run."""
        meant = meant_by(token)
        if self._secret is None:
            self._secret = await self._store.reads.channels.secret()
        check(secret_there(self._store.url, self._secret), namespace, token, meant)
        return meant

    async def _write_within(self, connection: object, post: PostMessage | PostDelayed) -> Settlement:
        return await self._store.write_within(connection, [post])

    def _refuse_if_full(self, run_id: str, id: str, now: int) -> None:
        """InboxFull for a run that has just been found so; a caller that sends on and on costs no other anything."""
        self._full = {full: until for full, until in self._full.items() if now < until}
        if run_id in self._full:
            raise InboxFull(id, self._max_unread)

    # Stopping

    async def cancel(self, namespace: str, run_id: str, id: str, reason: str | None, deadline_ms: int | None) -> None:
        """Ask a run to stop; after the deadline it is closed whatever its code does."""
        row = await self._open_run(namespace, run_id, id)
        answer = await self._stopping.cancel(row, reason, deadline_ms)
        if isinstance(answer, Closed) and answer.status == Status.CONTINUED:
            await self.cancel(namespace, run_id, id, reason, deadline_ms)
        elif answer is not None:
            self._raise_refusal(answer, namespace, id)
            if deadline_ms == 0:
                await self._until_ended(namespace, row.run_id)

    async def terminate(self, namespace: str, run_id: str, id: str, reason: str | None) -> None:
        """End a run at once, without clean-up; one whose row cannot be read as well as any other."""
        try:
            row = await self._open_run(namespace, run_id, id)
        except RunUnreadable as error:
            row = _rest_of(error)
            if row.closed_at is not None:
                raise
        answer = await self._stopping.terminate(row, reason)
        if isinstance(answer, Closed) and answer.status == Status.CONTINUED:
            await self.terminate(namespace, run_id, id, reason)
        elif answer is not None:
            self._raise_refusal(answer, namespace, id)
            await self._end_if_held(namespace, row.run_id, reason)
            await self._until_ended(namespace, row.run_id)
            await self._end_if_held(namespace, row.run_id, reason)

    async def pause(self, namespace: str, run_id: str, id: str, reason: str | None) -> None:
        """Have a run begin nothing more, and hold it once what is under way has ended."""
        answer = await self._stopping.pause(await self._open_run(namespace, run_id, id), reason)
        if isinstance(answer, Closed) and answer.status == Status.CONTINUED:
            await self.pause(namespace, run_id, id, reason)
        else:
            self._raise_refusal(answer, namespace, id)

    async def resume(self, namespace: str, run_id: str, id: str) -> None:
        """Let a held run go on; RunNotHeld or RunClosed for any other."""
        row = await self._open_run(namespace, run_id, id)
        answer = await self._stopping.resume(row)
        if isinstance(answer, Moved):
            was_held, row = row.held is not None, await self._reader.newest(namespace, row.run_id)
            if was_held and row.held is None:
                # Another caller has let it go on since it was read; it was us if the answer to that was lost.
                return
            row = await self._open_run(namespace, run_id, id)
            if row.status not in OPEN:
                trouble = f"its status is {row.status!r}, which no open run has"
                raise RunUnreadable(self._store.url, row.run_id, row.workflow_id, trouble)
            raise RunNotHeld(id, row.status)
        self._raise_refusal(answer, namespace, id)
        self._arrivals.look_around()

    async def set_attributes(self, namespace: str, run_id: str, change: Callable[[str | None], str]) -> None:
        """Let a run have what is made of its attributes, open or closed, or the run that continues it."""
        while True:
            row = await self._reader.newest(namespace, run_id)
            changed = change(row.attributes)
            now = self._clock.now()
            answer = await self._committer.apply(SetAttributes(row.run_id, namespace, row.attributes, changed, now))
            # Who was quicker has changed them: their attributes are changed now.
            if not isinstance(answer, Moved):
                self._raise_refusal(answer, namespace, row.workflow_id)
                return

    async def _open_run(self, namespace: str, run_id: str, id: str) -> RunRow:
        row = await self._reader.newest(namespace, run_id)
        if row.closed_at is not None:
            raise RunClosed(id, row.status)
        return row

    async def _end_if_held(self, namespace: str, run_id: str, reason: str | None) -> None:
        """The owner may have held the run instead of reading what it was told: then nobody else will."""
        try:
            row = await self._reader.read(namespace, run_id)
        except RunUnreadable as error:
            row = _rest_of(error)
        if row.closed_at is None and row.held is not None:
            await self._stopping.terminate(row, reason)

    async def _until_ended(self, namespace: str, run_id: str) -> None:
        """Until the run's owner has done what it was told to; one that does not answer is not waited for for long."""
        await first_of(self.wait(namespace, run_id), pause(self._clock, OWNER_PATIENCE_MS))

    def _raise_refusal(self, answer: Settlement, namespace: str, id: str) -> None:
        match answer:
            case Applied():
                return
            case Missing():
                raise RunNotFound(id, namespace)
            case Closed(status):
                raise RunClosed(id, status)
            case Full(most):
                raise InboxFull(id, most)
            case _:
                raise refusal_of(answer, self._store.url)


def _asked_otherwise(id: str, name: str, message_id: str) -> IdConflict:
    taken = message_id.removeprefix("request:")
    return IdConflict(taken, f"a request to run {id!r}", f"the request {name!r}", "that one asked something else")


def _rest_of(error: RunUnreadable) -> RunRow:
    """What can be read of a run's row, as far as the run can be ended by it; else the error."""
    if not isinstance(error.rest, RunRow):
        raise error
    return error.rest
