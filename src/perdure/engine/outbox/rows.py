"""Rows of sinks: what stands in them, checked."""

from collections.abc import Iterable

import msgspec

from perdure.engine.outbox.sinks import HIDDEN, Sink, Webhook
from perdure.errors import BadSink
from perdure.kernel.outbox import types_of
from perdure.stores.records import SinkRow


def checked_sink(sink: Sink) -> Sink:
    """A sink whose fields make sense; BadSink."""
    if not sink.events or not types_of(sink.events):
        raise BadSink('say which events: events=("run.*",)')
    if isinstance(sink.target, Webhook):
        sink.target.refuse_private()
        if HIDDEN in sink.target.secrets:
            raise BadSink("*** stands for a secret that is not shown; give the secret itself")
    try:
        return msgspec.convert(msgspec.to_builtins(sink), Sink)
    except msgspec.ValidationError as error:
        raise BadSink(f"this makes no sink: {error}") from None


def sink_of(row: SinkRow) -> Sink:
    """What a sink's row says of it."""
    return msgspec.json.decode(row.body, type=Sink)


def columns_of(sink: Sink) -> tuple[int, str | None, int, str]:
    """What the row of a sink says besides its name: types, workflows, max_backlog and body."""
    workflows = None if sink.workflows is None else msgspec.json.encode(sink.workflows).decode()
    return types_of(sink.events), workflows, sink.max_backlog, body_of(sink)


def body_of(sink: Sink) -> str:
    """A sink as its row has it."""
    return msgspec.json.encode(sink).decode()


def names(what: str, given: object) -> tuple[str, ...]:
    """A sequence of names; BadSink for one text, which is one by mistake."""
    if isinstance(given, str | bytes) or not isinstance(given, Iterable):
        raise BadSink(f"{what} is {given!r}; give a sequence of texts")
    found = tuple(given)
    if wrong := [each for each in found if not isinstance(each, str)]:
        raise BadSink(f"{what} has {wrong[0]!r}, which is no text")
    return found
