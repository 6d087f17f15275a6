"""A request: a message from outside that is answered, for the call that waits longest for one of its name."""

from typing import Any

import msgspec

from perdure.authoring.requests import Asked, Request
from perdure.errors import BadInput
from perdure.kernel.events import Event, RequestReceived
from perdure.kernel.messages import RequestSent
from perdure.worker.calls.call import AwaitedCall, CallingCode, CallingRun, unexpected


def key_of(sent: RequestSent) -> str:
    """What a request is waited for by."""
    return f"request({sent.name})"


class RequestCall(AwaitedCall, kind="request"):
    """A request to be received."""

    __slots__ = ("request",)

    messages = {RequestSent: key_of}  # noqa: RUF012 - it is read when the class is made

    def __init__(self, runtime: CallingCode, place: str, request: Request[Any, Any]) -> None:
        super().__init__(runtime, place)
        self.request = request

    @classmethod
    def ask(cls, runtime: CallingCode, request: Request[Any, Any]) -> "RequestCall":
        key = f"request({request.name})"
        call = cls(runtime, runtime.place(key), request)
        runtime.add(call)
        runtime.listen(call, key)
        return call

    def listens_to(self) -> tuple[str, ...]:
        return (f"request({self.request.name})",)

    def misfit(self, body: RequestSent) -> str | None:
        if self.request.payload.is_plain:
            return None
        try:
            self.request.payload.restore(body.value, f"the request {body.name!r}")
        except BadInput as error:
            return str(error)
        return None

    def answer(self, event: Event, restored: object) -> None:
        fact = event.fact
        if type(fact) is not RequestReceived:
            raise unexpected(event, self.runtime)
        try:
            value = self.request.payload.restore(fact.value, f"the request {fact.name!r}")
        except BadInput as error:
            self.future.set_exception(error)
        else:
            runtime: Any = self.runtime
            self.future.set_result(Asked(self.request, fact.message_id, value, runtime))

    def is_waiting_outside(self, live: CallingRun) -> bool:
        return True

    def shown(self, live: CallingRun) -> dict[str, object]:
        schema = self.request.accepts
        accepts = {} if schema is None else {"accepts": msgspec.Raw(schema)}
        return {"kind": "request", "place": self.place, "name": self.request.name, **accepts}
