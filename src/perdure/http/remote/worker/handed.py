"""Runs as the server hands them to this worker, with all it takes to go on with them.

In:   the answer to a claim.
Out:  runs as a store would have loaded them.
"""

from collections.abc import Sequence

import msgspec

from perdure.engine.ports.remote_runs import OwnedDetail
from perdure.kernel.events import FACTS, Event
from perdure.kernel.messages import KINDS, Message
from perdure.stores.records import AttemptRow, LoadedRun, NewMessage, RunRow


class WireRun(msgspec.Struct, frozen=True):
    """A run as it stands in the answer; events and messages are read by their kinds."""

    run_id: str
    id: str
    workflow: str
    input: msgspec.Raw
    seed: int
    created_at: int
    seq: int
    events: list[msgspec.Raw]
    messages: list[msgspec.Raw]
    had: int
    token_key: str
    more: bool
    detail: OwnedDetail


class WireRuns(msgspec.Struct, frozen=True):
    runs: list[WireRun]
    next_wake: int | None = None


class WireInbox(msgspec.Struct, frozen=True):
    """A page of what is unread of a run, and how many messages it has had."""

    messages: list[msgspec.Raw]
    had: int


class WireMessage(msgspec.Struct, frozen=True):
    """A message for a run of the worker."""

    run_id: str
    had: int
    message: msgspec.Raw


class WireNews(msgspec.Struct, frozen=True):
    """What came for runs of the worker."""

    after: int
    messages: list[WireMessage]


class EventHead(msgspec.Struct, frozen=True):
    seq: int
    at: int
    place: str
    kind: str


class MessageHead(msgspec.Struct, frozen=True):
    number: int
    id: str
    at: int
    kind: str


_event_head = msgspec.json.Decoder(EventHead).decode
_message_head = msgspec.json.Decoder(MessageHead).decode


def event_in(data: msgspec.Raw) -> Event:
    """An event of a history."""
    head = _event_head(data)
    return Event(head.seq, head.at, head.place, msgspec.json.decode(data, type=FACTS[head.kind]))


def message_in(data: msgspec.Raw) -> Message:
    """A message of an inbox."""
    head = _message_head(data)
    return Message(head.number, head.id, msgspec.json.decode(data, type=KINDS[head.kind]), head.at)


def news_in(news: WireNews) -> list[NewMessage]:
    """What has come, as a store would tell it."""
    return [NewMessage(each.run_id, message_in(each.message), each.had) for each in news.messages]


def loaded_run(run: WireRun, events: Sequence[msgspec.Raw], worker_id: str) -> LoadedRun:
    """A run with its whole past."""
    detail = run.detail
    attempts = [
        AttemptRow(each.place, each.attempt, each.name, each.error.failure, each.at, each.next_at)
        for each in detail.attempts
    ]
    return LoadedRun(
        _row(run, worker_id),
        [event_in(each) for each in events],
        [message_in(each) for each in run.messages] if detail.has_all_messages else None,
        attempts,
        frozenset(detail.started),
        detail.progress,
        frozenset(detail.unanswered),
        detail.heads,
    )


def _row(run: WireRun, worker_id: str) -> RunRow:
    detail = run.detail
    kept = {name: getattr(detail, name) for name in RunRow.__struct_fields__ if hasattr(detail, name)}
    return RunRow(
        **kept,
        run_id=run.run_id,
        workflow_id=run.id,
        workflow=run.workflow,
        input=bytes(run.input).decode(),
        seed=run.seed,
        created_at=run.created_at,
        updated_at=run.created_at,
        messages=run.had,
        owner=worker_id,
        held=None,
        held_report=None,
        wake_at=None,
        waiting=None,
        outcome=None,
        last_seq=None,
        closed_at=None,
    )
