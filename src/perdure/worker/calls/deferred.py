"""A deferred: a value from outside, the same one for all calls of the run that wait for its name."""

from typing import Any

import msgspec

from perdure import errors
from perdure.authoring.deferreds import Deferred
from perdure.errors import BadInput
from perdure.kernel.events import DeferredFailed, DeferredResolved, Event
from perdure.kernel.messages import DeferredFailure, DeferredResult
from perdure.worker.calls.call import AwaitedCall, CallingCode, CallingRun, given_in, unexpected


def key_of(sent: DeferredResult | DeferredFailure) -> str:
    """What a deferred is waited for by."""
    return f"deferred({sent.name})"


class DeferredCall(AwaitedCall, kind="deferred"):
    """A wait for a deferred; one that the run knows the value of is answered at once, without an event."""

    __slots__ = ("deferred", "since")

    messages = {DeferredResult: key_of, DeferredFailure: key_of}  # noqa: RUF012 - it is read when the class is made

    def __init__(self, runtime: CallingCode, place: str, deferred: Deferred[Any]) -> None:
        super().__init__(runtime, place)
        self.deferred = deferred
        self.since = runtime.loop.now

    @classmethod
    def ask(cls, runtime: CallingCode, deferred: Deferred[Any]) -> "DeferredCall":
        key = f"deferred({deferred.name})"
        call = cls(runtime, runtime.place(key), deferred)
        known = (runtime.resolved or {}).get(deferred.name)
        if known is None:
            runtime.add(call)
            runtime.listen(call, key)
        else:
            call._take(known)
        return call

    def listens_to(self) -> tuple[str, ...]:
        return (f"deferred({self.deferred.name})",)

    def answer(self, event: Event, restored: object) -> None:
        fact = event.fact
        if not isinstance(fact, DeferredResolved | DeferredFailed):
            raise unexpected(event, self.runtime)
        runtime = self.runtime
        runtime.resolved = {**(runtime.resolved or {}), fact.name: fact}
        self._take(fact)
        # One event is the answer to all that wait for it.
        for call in (runtime.listening or {}).pop(f"deferred({fact.name})", ()):
            if isinstance(call, DeferredCall) and call.is_waiting:
                runtime.pending.pop(call.place, None)
                call._take(fact)

    def as_answer(self, event: Event) -> DeferredResolved:
        return DeferredResolved(self.deferred.name, given_in(event))

    def _take(self, fact: DeferredResolved | DeferredFailed) -> None:
        if isinstance(fact, DeferredFailed):
            self.future.set_exception(errors.DeferredFailed(fact.error, fact.name))
            return
        try:
            self.future.set_result(self.deferred.payload.restore(fact.value, f"the deferred {fact.name!r}"))
        except BadInput as error:
            self.future.set_exception(error)

    def is_waiting_outside(self, live: CallingRun) -> bool:
        return True

    def shown(self, live: CallingRun) -> dict[str, object]:
        schema = self.deferred.accepts
        accepts = {} if schema is None else {"accepts": msgspec.Raw(schema)}
        return {"kind": "deferred", "place": self.place, "name": self.deferred.name, "since": self.since, **accepts}
