"""Many at once: what is asked of all runs that match a filter."""

from typing import Any, TypeVar

import msgspec

from perdure.authoring.options import checked_reason, milliseconds
from perdure.engine.ports import Broadcast, BulkAction, Steering, Verb
from perdure.errors import BadFilter, BadOption
from perdure.http.calls import Call
from perdure.http.table import Handler, NoQuery, RouteRows, Scope
from perdure.http.values import absent, checked_value
from perdure.ids import checked_id
from perdure.kernel.messages import SignalSent
from perdure.views.bulk import Bulk, act_on_all

ROWS = RouteRows()
ERRORS = (BadFilter, BadOption)
ABOUT = {
    Verb.CANCEL: "Ask all open runs that match to stop; their code may clean up first.",
    Verb.TERMINATE: "End all open runs that match at once, without clean-up.",
    Verb.PAUSE: "Have all open runs that match begin nothing more.",
    Verb.RESUME: "Let all held runs that match go on.",
    Verb.RETRY: "Run again what failed in all runs that match and have not ended well.",
}


class SteerAllBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which runs, `true` means all of them; the values in the filter, and why. `dry_run` only counts them."""

    where: str
    params: dict[str, Any] | None = None
    reason: str | None = None
    dry_run: bool = False


class SignalAllBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which runs, and the signal; under one `id` each of them gets it once, whenever sent; after `delay` seconds."""

    where: str
    name: str
    payload: msgspec.Raw = absent()
    params: dict[str, Any] | None = None
    id: str | None = None
    delay: float | None = None
    dry_run: bool = False


B = TypeVar("B", SteerAllBody, SignalAllBody)


async def _act(call: Call[NoQuery, B], action: BulkAction) -> Bulk:
    """A key of an entity reaches the runs of that entity alone, whatever the filter says."""
    body, entity_id = call.body, call.caller.entity_id
    where = (call.namespace, action, body.where, body.params, None)
    return await act_on_all(call.engine, *where, dry_run=body.dry_run, entity_id=entity_id)


def _steering(verb: Verb) -> Handler:
    async def steer_all(call: Call[NoQuery, SteerAllBody]) -> Bulk:
        return await _act(call, Steering(verb, checked_reason(call.body.reason)))

    steer_all.__name__ = f"{verb}_all"
    steer_all.__doc__ = ABOUT[verb]
    return steer_all


for each in Verb:
    ROWS.add("POST", f"/v1/bulk/{each}", Scope.STEER, body=SteerAllBody, answer=Bulk, errors=ERRORS)(_steering(each))


@ROWS.add("POST", "/v1/bulk/signal", Scope.STEER, body=SignalAllBody, answer=Bulk, errors=ERRORS)
async def signal_all(call: Call[NoQuery, SignalAllBody]) -> Bulk:
    """Send a signal to all open runs that match."""
    body = call.body
    name = checked_id("signal name", body.name)
    # Without an id it counts once in each run as well, however often a run is come to.
    message_id = call.request_id if body.id is None else f"signal:{checked_id('signal id', body.id)}"
    delay_ms = 0 if body.delay is None else milliseconds(body.delay, "delay")
    sent = SignalSent(name, checked_value(body.payload, f"the signal {name!r}"))
    return await _act(call, Broadcast(sent, message_id, delay_ms))
