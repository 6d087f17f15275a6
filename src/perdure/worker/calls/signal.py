"""A signal: a message from outside, for the call that waits longest for one of its name."""

from typing import Any

import msgspec

from perdure.authoring.signals import Signal
from perdure.errors import BadInput
from perdure.kernel.events import Event, SignalReceived
from perdure.kernel.messages import SignalSent
from perdure.worker.calls.call import AwaitedCall, CallingCode, CallingRun, given_in, unexpected


def key_of(sent: SignalSent) -> str:
    """What a signal is waited for by."""
    return f"signal({sent.name})"


class SignalCall(AwaitedCall, kind="signal"):
    """A signal to be received."""

    __slots__ = ("signal",)

    messages = {SignalSent: key_of}  # noqa: RUF012 - it is read when the class is made

    def __init__(self, runtime: CallingCode, place: str, signal: Signal[Any]) -> None:
        super().__init__(runtime, place)
        self.signal = signal

    @classmethod
    def ask(cls, runtime: CallingCode, signal: Signal[Any]) -> "SignalCall":
        key = f"signal({signal.name})"
        call = cls(runtime, runtime.place(key), signal)
        runtime.add(call)
        runtime.listen(call, key)
        return call

    def listens_to(self) -> tuple[str, ...]:
        return (f"signal({self.signal.name})",)

    def misfit(self, body: SignalSent) -> str | None:
        if self.signal.payload.is_plain:
            return None
        try:
            self.signal.payload.restore(body.payload, f"the signal {body.name!r}")
        except BadInput as error:
            return str(error)
        return None

    def answer(self, event: Event, restored: object) -> None:
        fact = event.fact
        if type(fact) is not SignalReceived:
            raise unexpected(event, self.runtime)
        try:
            self.future.set_result(self.signal.payload.restore(fact.payload, f"the signal {fact.name!r}"))
        except BadInput as error:
            self.future.set_exception(error)

    def as_answer(self, event: Event) -> SignalReceived:
        return SignalReceived(self.signal.name, given_in(event), "")

    def is_waiting_outside(self, live: CallingRun) -> bool:
        return True

    def shown(self, live: CallingRun) -> dict[str, object]:
        schema = self.signal.accepts
        accepts = {} if schema is None else {"accepts": msgspec.Raw(schema)}
        return {"kind": "signal", "place": self.place, "name": self.signal.name, **accepts}
