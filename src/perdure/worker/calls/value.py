"""A side effect: a small function that is called once, and whose value a replay gets from its record."""

from collections.abc import Callable
from typing import Any

import msgspec

from perdure.codec import Signature, ValueType
from perdure.errors import BadInput
from perdure.kernel.commands import RecordOutcome
from perdure.kernel.events import Event, ValueRecorded
from perdure.worker.activities import RunningAttempt
from perdure.worker.calls.call import (
    AwaitedCall,
    CallingCode,
    CallingRun,
    CallServices,
    given_in,
    unexpected,
    unreadable,
)

SIDE_EFFECT_TIMEOUT = 60.0

_ANY = ValueType(Any)


class ValueCall(AwaitedCall, kind="side_effect"):
    """A side effect to be recorded, under the annotation its function has."""

    __slots__ = ("fn", "value_type")

    def __init__(self, runtime: CallingCode, place: str, fn: Callable[[], Any]) -> None:
        super().__init__(runtime, place)
        self.fn = fn
        annotated = "return" in getattr(fn, "__annotations__", ())
        self.value_type = Signature(fn, place).result if annotated else _ANY

    @classmethod
    def ask(cls, runtime: CallingCode, fn: Callable[[], Any]) -> "ValueCall":
        name = getattr(fn, "__name__", type(fn).__name__).strip("<>")
        call = cls(runtime, runtime.place(f"side_effect({name})"), fn)
        runtime.add(call)
        return call

    def answer(self, event: Event, restored: object) -> None:
        fact = event.fact
        if type(fact) is not ValueRecorded:
            raise unexpected(event, self.runtime)
        try:
            self.future.set_result(self.value_type.restore(fact.value, self.place))
        except BadInput as error:
            raise unreadable(event, self.runtime, error, "value") from None

    def as_answer(self, event: Event) -> ValueRecorded:
        return ValueRecorded(given_in(event))

    def start(self, live: CallingRun, services: CallServices) -> None:
        if self.place in live.running:
            return

        def ended(error: BaseException | None, value: Any) -> None:
            live.running.pop(self.place, None)
            if live.is_gone:
                return
            if error is None:
                try:
                    data, _ = self.value_type.record(value, "the value of side_effect()")
                except BadInput as refused:
                    error = refused
                else:
                    services.advance(live, RecordOutcome(self.place, ValueRecorded(msgspec.Raw(data))))
                    return
            services.fail(live, _as_exception(error))

        attempt = live.running[self.place] = RunningAttempt(ended, SIDE_EFFECT_TIMEOUT)
        services.runner.run(attempt, self.fn, (), {})

    def is_under_way(self, until: int) -> bool:
        return True


def _as_exception(error: BaseException) -> Exception:
    return error if isinstance(error, Exception) else RuntimeError(f"{type(error).__name__}: {error}")
