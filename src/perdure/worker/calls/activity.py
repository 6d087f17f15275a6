"""An activity: user code that runs in this process, is tried again when it fails, and is recorded when it ends."""

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Any

import msgspec

from perdure.authoring.activity import Activity
from perdure.authoring.activity_context import SAME_DETAILS, Attempt, AttemptSource, running
from perdure.authoring.options import ActivityOptions
from perdure.codec import Arguments
from perdure.errors import ActivityFailed, AttemptLost, BadInput
from perdure.kernel import events
from perdure.kernel.commands import RecordOutcome
from perdure.kernel.events import ActivityCompleted, Event
from perdure.kernel.retry import is_retryable, next_attempt_at
from perdure.stores.records import AttemptRow, CallProgress
from perdure.worker.activities import Manner, run_at_once
from perdure.worker.calls.call import (
    UNRESTORED,
    AwaitedCall,
    CallingCode,
    CallingRun,
    CallServices,
    given_in,
    unexpected,
    unreadable,
)
from perdure.worker.failures.failures import failure_of, raised
from perdure.worker.heartbeats import BeatingAttempt, Heartbeats, recorded_details, restored_details
from perdure.worker.loop.places import current_branch, keyed_place

Raw = msgspec.Raw


class ActivityAttempt(BeatingAttempt):
    """An attempt of an activity in a task or in a thread, as its own code sees it."""

    __slots__ = ("_call", "_number")

    def __init__(
        self,
        call: "ActivityCall",
        live: CallingRun,
        services: CallServices,
        began: int,
        settings: ActivityOptions | None = None,
    ) -> None:
        settings = settings or call.activity.settings
        super().__init__(
            partial(call.ended, live, services, began),
            settings.timeout,
            settings.heartbeat,
            live.owned,
            call.place,
            services.part(Heartbeats),
        )
        self._call = call
        self._number = getattr(call, "attempts", 1)

    def attempt(self) -> Attempt:
        return attempt_of(self._call, self, self._number)

    def publish(self, name: str, body: str) -> None:
        """A value for a stream; of an attempt that nobody waits for any more, it is dropped."""
        if not self.is_over:
            publish(self._call, self._number, name, body)

    @property
    def resources(self) -> Sequence[object]:
        return self._call.resources

    def instead_of_connection(self) -> str | None:
        return None


class ActivityCall(AwaitedCall, kind="activity"):
    """An activity to be run; its arguments as written, and as a replay would restore them."""

    __slots__ = ("activity", "args", "attempts", "data", "kwargs", "said")

    # Only there after a failed one.
    attempts: int
    # Only there when its code runs at once and has called heartbeat().
    said: CallProgress
    # It runs at once: nobody has a turn who could cancel it.
    is_cancelled = False

    def __init__(self, runtime: CallingCode, place: str, activity: Activity[..., Any], arguments: Arguments) -> None:
        self.runtime = runtime
        self.place = place
        self.future = asyncio.Future(loop=runtime.loop)
        self.activity = activity
        self.data, self.args, self.kwargs = arguments

    @classmethod
    def ask(
        cls, runtime: CallingCode, activity: Activity[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> "ActivityCall":
        loop = runtime.loop
        if loop.is_dead:
            loop.refuse_when_dead()
        if activity.key is None:
            place = current_branch.get(loop.root).place(activity.name)
        else:
            place = keyed_place(loop.root, f"{activity.name}({activity.key})")
        call = cls(runtime, place, activity, activity.signature.record(args, kwargs))
        runtime.pending[place] = call
        runtime.fresh.append(call)
        return call

    def answer(self, event: Event, restored: object) -> None:
        fact = event.fact
        if type(fact) is ActivityCompleted:
            if restored is UNRESTORED:
                try:
                    restored = self.activity.signature.result.restore(fact.result, self.place)
                except BadInput as error:
                    raise unreadable(event, self.runtime, error) from None
            self.future.set_result(restored)
        elif type(fact) is events.ActivityFailed:
            self.runtime.last_failure = fact.failure
            self.future.set_exception(raised(fact.failure, partial(ActivityFailed, self.activity.name)))
        else:
            raise unexpected(event, self.runtime)

    # An attempt, and what its code can know of it

    def attempt(self) -> Attempt:
        """What the activity's code can know of this attempt."""
        return attempt_of(self, self, getattr(self, "attempts", 1))

    def heartbeat(self, details: object) -> None:
        """Of code that runs at once, only the details for the next attempt matter."""
        given = None if details is SAME_DETAILS else recorded_details(details)
        self.said = CallProgress(self.place, details=given, beat_at=self.runtime.loop.now)

    def publish(self, name: str, body: str) -> None:
        publish(self, getattr(self, "attempts", 1), name, body)

    @property
    def resources(self) -> Sequence[object]:
        return self.runtime.owned.resources

    def instead_of_connection(self) -> str | None:
        """No transaction, no connection but those that were given."""
        return None

    def as_answer(self, event: Event) -> ActivityCompleted:
        return ActivityCompleted(self.activity.name, Raw(self.data), given_in(event), event.at)

    def start(self, live: CallingRun, services: CallServices) -> None:
        place = self.place
        began = services.clock.now()
        if place in live.running:
            return
        activity = self.activity
        if live.retries is not None and not is_due(self, live, services):
            return
        if activity.settings.at_most_once and not has_begun(self, live, services):
            return
        fn = activity.fn
        runner = services.runner
        manner = runner.manners.get(fn) or runner.manner_of(fn)
        if manner is Manner.AT_ONCE:
            running.set(self)
            error, value = run_at_once(fn, self.args, self.kwargs)
            self.ended(live, services, began, error, value)
        else:
            attempt = live.running[place] = ActivityAttempt(self, live, services, began)
            running.set(attempt)
            runner.run(attempt, fn, self.args, self.kwargs)

    def ring(self, live: CallingRun, services: CallServices) -> None:
        if not live.is_leaving:
            services.start(live, [self])

    def ended(
        self, live: CallingRun, services: CallServices, began: int, error: BaseException | None, value: Any
    ) -> None:
        """Record what the activity returned; or try again later; or record that it failed."""
        if live.is_gone:
            return
        attempt = live.running.pop(self.place, None) if live.running else None
        if live.owned.outlet is not None:
            # Before the outcome, which may be the end of the run.
            live.owned.outlet.flush()
        if error is None:
            try:
                data, restored = self.activity.signature.result.record(value, self.activity.result_name)
            except BadInput as refused:
                # Another attempt would return the like of it, and do whatever it does once more.
                record_failure(self, live, services, began, refused)
            else:
                number = 1 if live.retries is None else live.failed_attempts(self.place) + 1
                outcome = ActivityCompleted(self.activity.name, Raw(self.data), Raw(data), began, number)
                services.advance(live, RecordOutcome(self.place, outcome), restored)
        if error is not None:
            said = getattr(self, "said", None) if attempt is None else attempt.last_words()
            try_again(self, live, services, began, error, said)

    # Waiting

    def is_under_way(self, until: int) -> bool:
        return True

    def is_waiting_outside(self, live: CallingRun) -> bool:
        return live.retry_at(self.place) is not None

    def wake_at(self, live: CallingRun, now: int) -> int | None:
        return live.retry_at(self.place)

    def shown(self, live: CallingRun) -> dict[str, object]:
        shown: dict[str, object] = {"kind": "activity", "place": self.place, "name": self.activity.name}
        if failed := live.failed_attempts(self.place):
            shown["failed_attempts"] = failed
        if (next_at := live.retry_at(self.place)) is not None:
            shown["until"] = next_at
        return shown

    @property
    def activity_here(self) -> str | None:
        return self.activity.name


# How attempts begin and end


def attempt_of(call: ActivityCall, source: AttemptSource, number: int) -> Attempt:
    """What the code of an attempt can know of it."""
    owned, name = call.runtime.owned, call.activity.name
    details = restored_details(None if owned.progress is None else owned.progress.get(call.place))
    key = f"{owned.run_id}/{call.place}"
    return Attempt(name, key, number, owned.workflow_id, owned.run_id, owned.workflow, details, source)


def publish(call: ActivityCall, number: int, name: str, body: str) -> None:
    """Publish a value of an attempt."""
    owned = call.runtime.owned
    assert owned.publishing is not None, "workers hand it to their runs"
    owned.publishing.publish(owned, call.place, number, name, body)


def is_due(call: ActivityCall, live: CallingRun, services: CallServices) -> bool:
    """Whether the next attempt of a call may begin after those that failed; when not, it is rung for."""
    assert live.retries is not None
    place = call.place
    next_at = live.retries.next_at.get(place)
    if next_at is not None and not services.clock.is_over(next_at):
        services.ring_at(next_at, live, call)
        return False
    live.retries.next_at.pop(place, None)
    failed = live.retries.failed.get(place, 0)
    if failed:
        call.attempts = failed + 1
        # The attempt before may have changed its arguments.
        call.args, call.kwargs = call.activity.signature.restore(call.data)
    return True


def has_begun(call: ActivityCall, live: CallingRun, services: CallServices) -> bool:
    """Whether the only attempt of a call may run now: its begin is on disk, and it is this worker that wrote it."""
    owned, place = live.owned, call.place
    if owned.begins is None:
        owned.begins = {}
    known = (owned.progress or {}).get(place)
    if place in owned.begins:
        is_written = owned.begins[place]
        if is_written:
            owned.know(CallProgress(place, begun_at=services.clock.now()))
            del owned.begins[place]
        return is_written
    if known is not None and known.begun_at is not None:
        record_failure(call, live, services, known.begun_at, AttemptLost(call.activity.name, place))
        return False
    owned.begins[place] = False
    services.engine.owner.begin_attempt(owned, place, partial(_begin, call, live, services))
    return False


def _begin(call: ActivityCall, live: CallingRun, services: CallServices) -> None:
    """The begin of the only attempt is on disk."""
    assert live.owned.begins is not None
    live.owned.begins[call.place] = True
    services.start(live, [call])


def try_again(
    call: ActivityCall,
    live: CallingRun,
    services: CallServices,
    began: int,
    error: BaseException,
    said: CallProgress | None,
) -> None:
    """Make another attempt after this one, which failed, when that is due; or record the failure."""
    number = live.failed_attempts(call.place) + 1
    failure = failure_of(error)
    retry = call.activity.settings.retry
    now = services.clock.latest()
    next_at = next_attempt_at(retry, number, now) if is_retryable(retry, error, failure) else None
    if next_at is None:
        record_failure(call, live, services, began, error)
        return
    if live.is_leaving:
        # Another worker may have the run by now; its next owner makes this attempt again.
        return
    record = AttemptRow(call.place, number, call.activity.name, failure, now, next_at)
    live.add_failed(record)
    if said is not None:
        # In the batch of the failure, or one before: the next attempt begins after that.
        live.owned.know(said)
        services.engine.owner.record_beats(live.owned, [said])
    services.engine.owner.record_attempt(live.owned, record, partial(call.ring, live, services))


def record_failure(
    call: ActivityCall, live: CallingRun, services: CallServices, began: int, error: BaseException
) -> None:
    """Record that an activity has failed for good."""
    number = live.failed_attempts(call.place) + 1
    failed = events.ActivityFailed(call.activity.name, Raw(call.data), failure_of(error), began, number)
    services.advance(live, RecordOutcome(call.place, failed))
