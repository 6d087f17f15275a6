"""An activity: user code that runs in this process, is tried again when it fails, and is recorded when it ends."""

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Any

import msgspec

from perdure.authoring.activity import Activity
from perdure.authoring.activity_context import Attempt, running
from perdure.codec import Arguments
from perdure.errors import ActivityFailed, BadInput
from perdure.kernel import events
from perdure.kernel.commands import RecordOutcome
from perdure.kernel.events import ActivityCompleted, Event
from perdure.kernel.retry import is_retryable, next_attempt_at
from perdure.stores.records import AttemptRow
from perdure.worker.activities import Manner, run_at_once
from perdure.worker.calls.call import (
    UNRESTORED,
    AwaitedCall,
    CallingCode,
    CallingRun,
    CallServices,
    unexpected,
    unreadable,
)
from perdure.worker.failures.failures import failure_of, raised
from perdure.worker.loop.places import current_branch

Raw = msgspec.Raw


class ActivityCall(AwaitedCall, kind="activity"):
    """An activity to be run; its arguments as written, and as a replay would restore them."""

    __slots__ = ("activity", "args", "attempts", "data", "kwargs")

    # Only there after a failed one.
    attempts: int

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
            place = loop.root.place(f"{activity.name}({activity.key})")
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
        owned = self.runtime.owned
        key = f"{owned.run_id}/{self.place}"
        number = getattr(self, "attempts", 1)
        return Attempt(self.activity.name, key, number, owned.workflow_id, owned.run_id, owned.workflow)

    @property
    def resources(self) -> Sequence[object]:
        return self.runtime.owned.resources

    def start(self, live: CallingRun, services: CallServices) -> None:
        place = self.place
        began = services.clock.now()
        if place in live.running:
            return
        activity = self.activity
        if live.retries is not None:
            next_at = live.retries.next_at.get(place)
            if next_at is not None and not services.clock.is_over(next_at):
                services.ring_at(next_at, live, self)
                return
            live.retries.next_at.pop(place, None)
            failed = live.retries.failed.get(place, 0)
            if failed:
                self.attempts = failed + 1
                # The attempt before may have changed its arguments.
                self.args, self.kwargs = activity.signature.restore(self.data)
        fn = activity.fn
        runner = services.runner
        manner = runner.manners.get(fn) or runner.manner_of(fn)
        running.set(self)
        if manner is Manner.AT_ONCE:
            error, value = run_at_once(fn, self.args, self.kwargs)
            self._ended(live, services, began, error, value)
        else:
            ended = partial(self._ended, live, services, began)
            live.running[place] = runner.run(fn, self.args, self.kwargs, activity.settings.timeout, ended)

    def ring(self, live: CallingRun, services: CallServices) -> None:
        if not live.is_leaving:
            services.start(live, [self])

    def _ended(
        self, live: CallingRun, services: CallServices, began: int, error: BaseException | None, value: Any
    ) -> None:
        """Record what the activity returned; or try again later; or record that it failed."""
        if live.is_gone:
            return
        if live.running:
            live.running.pop(self.place, None)
        if error is None:
            try:
                data, restored = self.activity.signature.result.record(value, self.activity.result_name)
            except BadInput as refused:
                # Another attempt would return the like of it, and do whatever it does once more.
                self._record_failure(live, services, began, refused)
            else:
                number = 1 if live.retries is None else live.failed_attempts(self.place) + 1
                outcome = ActivityCompleted(self.activity.name, Raw(self.data), Raw(data), began, number)
                services.advance(live, RecordOutcome(self.place, outcome), restored)
        if error is not None:
            self._failed(live, services, began, error)

    def _failed(self, live: CallingRun, services: CallServices, began: int, error: BaseException) -> None:
        number = live.failed_attempts(self.place) + 1
        failure = failure_of(error)
        retry = self.activity.settings.retry
        now = services.clock.latest()
        next_at = next_attempt_at(retry, number, now) if is_retryable(retry, error, failure) else None
        if next_at is None:
            self._record_failure(live, services, began, error)
            return
        if live.is_leaving:
            # Another worker may have the run by now; its next owner makes this attempt again.
            return
        record = AttemptRow(self.place, number, self.activity.name, failure, now, next_at)
        live.add_failed(record)
        services.engine.owner.record_attempt(live.owned, record, partial(services.start, live, [self]))

    def _record_failure(self, live: CallingRun, services: CallServices, began: int, error: BaseException) -> None:
        number = live.failed_attempts(self.place) + 1
        failed = events.ActivityFailed(self.activity.name, Raw(self.data), failure_of(error), began, number)
        services.advance(live, RecordOutcome(self.place, failed))

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
