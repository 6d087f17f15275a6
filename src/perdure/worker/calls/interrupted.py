"""A wait for a request to stop: while code waits here, a cancel is an answer and raises nothing."""

from perdure.kernel.events import CancelRequested, Event
from perdure.worker.calls.call import AwaitedCall, CallingCode, CallingRun, unexpected


class InterruptedCall(AwaitedCall, kind="interrupted"):
    """A branch waits to be told that the run shall stop; the event of the request is the answer to all that do."""

    __slots__ = ()

    @classmethod
    def ask(cls, runtime: CallingCode) -> "InterruptedCall":
        call = cls(runtime, runtime.place("interrupted"))
        if runtime.cancelled is None:
            runtime.add(call)
        else:
            call.future.set_result(runtime.cancelled.reason)
        return call

    def answer(self, event: Event, restored: object) -> None:
        # A request to stop is a note of the run and has no place; no event has the place of this call.
        raise unexpected(event, self.runtime)

    def is_waiting_outside(self, live: CallingRun) -> bool:
        return True


def tell_interrupted(runtime: CallingCode, cancelled: CancelRequested) -> bool:
    """Tell the branches that wait to be told; False when there is none, so that the run is to be cancelled."""
    waiting = [call for call in runtime.pending.values() if isinstance(call, InterruptedCall) and call.is_waiting]
    for call in waiting:
        del runtime.pending[call.place]
        call.future.set_result(cancelled.reason)
    return bool(waiting)
