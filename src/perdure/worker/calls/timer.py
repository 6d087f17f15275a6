"""A timer: whatever asyncio waits for by the clock; it costs no row to start."""

from perdure.kernel.commands import FireTimer
from perdure.kernel.events import Event, TimerFired
from perdure.worker.calls.call import CallingCode, CallingRun, CallServices, DurableCall, unexpected
from perdure.worker.loop.loop import RunTimer


class TimerCall(DurableCall, kind="timer"):
    """A timer of the run's loop."""

    __slots__ = ("handle",)

    def __init__(self, runtime: CallingCode, handle: RunTimer) -> None:
        self.runtime = runtime
        self.handle = handle
        self.place = handle.place

    @classmethod
    def ask(cls, runtime: CallingCode, handle: RunTimer) -> "TimerCall":
        call = cls(runtime, handle)
        runtime.pending[handle.place] = call
        runtime.fresh.append(call)
        return call

    @property
    def is_waiting(self) -> bool:
        return not self.handle.cancelled()

    @property
    def fire_at(self) -> int:
        return self.handle.fire_at

    def answer(self, event: Event, restored: object) -> None:
        if type(event.fact) is not TimerFired:
            raise unexpected(event, self.runtime)
        self.runtime.loop.fire(self.handle)

    def as_answer(self, event: Event) -> TimerFired:
        return TimerFired(self.handle.fire_at)

    def start(self, live: CallingRun, services: CallServices) -> None:
        services.ring_at(self.handle.fire_at, live, self)

    def ring(self, live: CallingRun, services: CallServices) -> None:
        services.advance(live, FireTimer(self.place, self.handle.fire_at))

    def is_under_way(self, until: int) -> bool:
        return self.handle.fire_at <= until

    def is_waiting_outside(self, live: CallingRun) -> bool:
        return True

    def wake_at(self, live: CallingRun, now: int) -> int | None:
        return self.handle.fire_at

    def shown(self, live: CallingRun) -> dict[str, object]:
        return {"kind": "timer", "place": self.place, "until": self.handle.fire_at}
