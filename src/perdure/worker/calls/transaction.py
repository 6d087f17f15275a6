"""A transactional activity: its SQL and its recorded outcome are committed together, or neither is.

In:   an activity with `transaction=True`, called where it runs.
Out:  what it returned, once that and its rows are on disk; a failed attempt leaves no rows, and is tried again as
      any other.

The code gets a connection to the engine's own database by resource(). When it has returned, nothing else happens to
its run until the transaction is committed or undone: the event that records it has the next number of the history.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextvars import Context, copy_context
from typing import Any, assert_never

import msgspec

from perdure.authoring.activity_context import running
from perdure.authoring.options import ActivityOptions
from perdure.engine.background import Background
from perdure.engine.ports import Gone, Transacted, Transactor, Unwritten, Written
from perdure.errors import BadInput, BadOption, TransactionEnded
from perdure.kernel.commands import RecordOutcome
from perdure.kernel.events import ActivityCompleted
from perdure.stores.answers import Undone
from perdure.worker.activities import Exited, without_exit
from perdure.worker.calls.activity import ActivityAttempt, ActivityCall, is_due, record_failure
from perdure.worker.calls.call import CallingRun, CallServices

# How long code may take, unless it says so itself, where everybody who writes waits for it.
ALONE_SECONDS = 5.0
# After so long an attempt is made again that the database did not take.
AGAIN_MS = 500


def settings_for(settings: ActivityOptions, transactor: Transactor) -> ActivityOptions:
    """How an activity is tried on this database."""
    if transactor.is_alone and not settings.has_timeout:
        return msgspec.structs.replace(settings, timeout=ALONE_SECONDS)
    return settings


class TransactionAttempt(ActivityAttempt):
    """An attempt inside a transaction, as its own code sees it."""

    __slots__ = ("_transactor", "connection")

    def __init__(self, call: "TransactionCall", live: CallingRun, services: CallServices, began: int) -> None:
        self._transactor = transactor = services.engine.transactor
        super().__init__(call, live, services, began, settings_for(call.activity.settings, transactor))
        self.connection: object = None

    @property
    def resources(self) -> Sequence[object]:
        return (self.connection, *self._call.resources)

    def instead_of_connection(self) -> str:
        right = self._transactor.connection_type(is_async=self._call.activity.is_async)
        return f"this transaction is on a {right}: ask for resource({right})"


class TransactionCode:
    """The code of an attempt, for the engine's transactor, and what comes of it."""

    def __init__(self, call: "TransactionCall", live: CallingRun, services: CallServices) -> None:
        self._call = call
        self._live = live
        self._services = services
        self._began = services.clock.now()
        self.attempt = TransactionAttempt(call, live, services, self._began)
        self._context: Context = copy_context()
        self._context.run(running.set, self.attempt)
        self._is_accepted = False
        self._restored: object = None
        self.activity = call.activity.name
        self.is_async = call.activity.is_async

    # What the transactor asks of it

    def run(self, connection: object) -> Any:
        """Call the function: what it returns, or its task. Any thread may call."""
        call, attempt = self._call, self.attempt
        attempt.connection = connection
        attempt.begin(self._services.clock.monotonic())
        fn: Callable[..., Any] = call.activity.fn
        if not self.is_async:
            return self._context.run(fn, *call.args, **call.kwargs)
        work = without_exit(fn, call.args, call.kwargs)
        task = asyncio.get_running_loop().create_task(work, context=self._context)
        attempt.cancels(task)
        return task

    def unwanted(self) -> BaseException | None:
        """Why nobody wants it any more; None while it is wanted. Any thread may call."""
        late = self.attempt.late(self._services.clock.monotonic())
        if late is None and self.attempt.is_cancelled:
            return asyncio.CancelledError("nobody waits for this activity any more")
        return late

    def accept(self, value: object) -> RecordOutcome | None:
        """The command that records what the function returned; None when it is not to be recorded."""
        live, call, signature = self._live, self._call, self._call.activity.signature
        if self.attempt.is_over or live.is_gone or live.is_leaving or not call.is_waiting:
            return None
        try:
            data, self._restored = signature.result.record(value, call.activity.result_name)
        except BadInput as refused:
            self.fail(refused)
            return None
        # From here on neither its timeout nor a cancellation can reach it.
        self.attempt.forget()
        self._is_accepted = live.is_committing = True
        number = live.failed_attempts(call.place) + 1
        outcome = ActivityCompleted(self.activity, msgspec.Raw(call.data), msgspec.Raw(data), self._began, number)
        return RecordOutcome(call.place, outcome)

    # Its end

    def told(self, ended: Transacted) -> None:
        """Go on with what came of it."""
        if self._is_accepted:
            self._remove()
        match ended:
            case Written(event):
                self._services.commits.deliver_written(self._live, event, self._restored)
            case Undone(error):
                self._undone(error)
            case Unwritten():
                self._unwritten()
            case Gone():
                self._remove()
            case _:
                assert_never(ended)

    def _undone(self, error: BaseException | None) -> None:
        if self._is_accepted:
            self._services.commits.go_on(self._live)
            if error is not None:
                self._call.ended(self._live, self._services, self._began, error, None)
        elif isinstance(error, TransactionEnded) and not self.attempt.is_over:
            # Another attempt would do the same.
            self.fail(error)
        elif error is not None:
            self.attempt.end(error.__cause__ if isinstance(error, Exited) else error, None)

    def _unwritten(self) -> None:
        """The database is to blame: make the attempt again in a while; it does not count."""
        if self._is_accepted:
            self._services.commits.go_on(self._live)
        elif self.attempt.is_over:
            return
        self._remove()
        self._services.ring_at(self._services.clock.now() + AGAIN_MS, self._live, self._call)

    def fail(self, error: BaseException) -> None:
        """The activity has failed for good."""
        self._remove()
        if not self._live.is_gone:
            record_failure(self._call, self._live, self._services, self._began, error)

    def _remove(self) -> None:
        """The attempt is not under way any more."""
        self.attempt.forget()
        if self._live.running.get(self._call.place) is self.attempt:
            del self._live.running[self._call.place]


class TransactionCall(ActivityCall, kind="transaction"):
    """A transactional activity to be run."""

    __slots__ = ()

    def start(self, live: CallingRun, services: CallServices) -> None:
        if self.place in live.running or (live.retries is not None and not is_due(self, live, services)):
            return
        services.part(TransactionsUnderWay).begin(self, live)


class TransactionsUnderWay:
    """The transactions of activities that are under way in a worker."""

    def __init__(self, services: CallServices) -> None:
        self._services = services
        self._background = Background(services.clock)

    def begin(self, call: TransactionCall, live: CallingRun) -> None:
        """Make an attempt."""
        services = self._services
        code = TransactionCode(call, live, services)
        live.running[call.place] = code.attempt
        refused = services.engine.transactor.refusal(code.activity, is_async=code.is_async)
        if refused is not None:
            code.fail(BadOption(refused))
            return
        task = self._background.spawn(self._transact(live, code))
        services.runner.watch(code.attempt, task, in_thread=not code.is_async)

    async def _transact(self, live: CallingRun, code: TransactionCode) -> None:
        code.told(await self._services.engine.transactor.run(live.owned, code))

    def clear(self) -> None:
        """Nothing is ours any more; what is under way learns that by itself."""

    def abandon(self) -> None:
        """Wait for nothing any more."""
        self._background.cancel()
