"""One run in full: all that there is to know about it.

In:   the engine and a run.
Out:  the run as it stands, the ends of its history, what failed, what has come for it, what it has started.
A history may be long; only what is shown of it is kept.
"""

from dataclasses import asdict
from typing import NamedTuple

from perdure.engine.ports import Engine
from perdure.errors import RunNotFound, RunUnreadable
from perdure.stores.records import RunFilter, RunRow
from perdure.views.finding import page_of
from perdure.views.held import report_of
from perdure.views.outputs import snapshot_of
from perdure.views.run import (
    FailedAttempt,
    RunEvent,
    RunInfo,
    UnreadMessage,
    Wait,
    attempt_view,
    message_view,
    run_view,
)
from perdure.views.run_views import HasRunViews, RunViews
from perdure.views.timeline import WantedEvents, error_in, history_of, input_in
from perdure.views.words import visible

MOST_CHILDREN = 20
# An inbox may be long as well: so many of its messages are shown, and so many are counted.
MOST_UNREAD = 1000
MOST_COUNTED = 1_000_000


class RunDetail(NamedTuple):
    """A run in full; `parent` is the id of the run that started this one.

    Of a history that cannot be read to its end, `last` is the last event before that; none, if it is the first.
    `trouble` says what cannot be read.
    """

    info: RunInfo
    parent: str | None
    first: RunEvent | None
    last: RunEvent | None
    trouble: RunUnreadable | None
    causes: list[RunEvent]
    attempts: list[FailedAttempt]
    unread: list[UnreadMessage]
    unread_count: int
    set_aside: list[UnreadMessage]
    children: list[RunInfo]
    has_more_children: bool
    # What it shows of itself takes so many bytes; how many values it has published, by stream.
    shown_bytes: int = 0
    streams: dict[str, int] = {}  # noqa: RUF012 - nobody changes it

    @property
    def input(self) -> object:
        """What the run was started with; None when that cannot be read."""
        return None if self.first is None else input_in(self.first.body)

    @property
    def result(self) -> object:
        """What the run has returned; None when it has not, or when that cannot be read."""
        return self.last.body["result"] if self.has_result and self.last is not None else None

    @property
    def has_result(self) -> bool:
        """Whether the run has returned something that can be read."""
        return self.last is not None and self.last.kind == "RunCompleted"

    @property
    def events(self) -> int:
        """How many events can be read."""
        return 0 if self.last is None else self.last.seq


def listed(info: RunInfo) -> dict[str, object]:
    """A run for programs; its report as JSON, not as a text with JSON in it, and of its waits what there is to say."""
    fields: dict[str, object] = {name: getattr(info, name) for name in info.__dataclass_fields__}
    waits = [_told(wait) for wait in info.waiting_for]
    return fields | {"held_report": report_of(info), "waiting_for": waits}


def _told(wait: Wait) -> dict[str, object]:
    """Of a wait what there is to say; details of a heartbeat may be nothing or none, and are told all the same."""
    told = {name: value for name, value in asdict(wait).items() if value}
    return told if wait.beat_at is None else told | {"details": wait.details}


def fields_of(detail: RunDetail) -> dict[str, object]:
    """A run in full, for programs."""
    return listed(detail.info) | {
        "parent_workflow_id": detail.parent,
        "input": detail.input,
        "result": detail.result,
        "events": detail.events,
        "failed_attempts": detail.attempts,
        "unread": detail.unread,
        "unread_count": detail.unread_count,
        "set_aside": detail.set_aside,
        "shown_bytes": detail.shown_bytes,
        "streams": detail.streams,
        "children": [
            {"id": child.id, "run_id": child.run_id, "workflow": child.workflow, "status": child.status}
            for child in detail.children
        ],
    }


async def detail_of(engine: Engine, namespace: str, run_id: str, most_unread: int = MOST_UNREAD) -> RunDetail:
    """Everything about a run; of the messages it has not read, the first ones and how many there are."""
    if isinstance(engine, HasRunViews):
        return await _detail_by(engine.views, namespace, run_id, most_unread)
    info = await run_view(engine, await engine.reader.read(namespace, run_id))
    children = await page_of(engine, RunFilter(info.namespace, parent_id=run_id, limit=MOST_CHILDREN))
    failed, first, last, trouble = [], None, None, None
    attempts: list[FailedAttempt] = []
    unread, unread_count = list[UnreadMessage](), 0
    set_aside: list[UnreadMessage] = []
    shown_bytes, streams = 0, dict[str, int]()
    try:
        async for last in history_of(engine, namespace, run_id):
            first = first or last
            if last.kind in {"ActivityFailed", "ChildFailed"}:
                failed.append(last)
        attempts = [attempt_view(each) for each in await engine.reader.attempts(run_id)]
        page = (await engine.reader.unread_page(run_id, 0, most_unread)).messages
        unread, unread_count = [message_view(each) for each in page], len(page)
        if unread_count == most_unread:
            unread_count = await engine.reader.count_unread(run_id, MOST_COUNTED)
        set_aside = [message_view(each) for each in await engine.reader.misfits(run_id)]
        shown_bytes = (await snapshot_of(engine, namespace, run_id)).size
        streams = {head.name: head.n for head in await engine.outputs.heads(run_id)}
    except RunUnreadable as error:
        # What can be read of it is shown all the same.
        trouble = error
    return RunDetail(
        info=info,
        parent=await _id_of(engine, namespace, info.parent_id),
        first=first,
        last=last,
        trouble=trouble,
        causes=_causes(info.error or "", failed),
        attempts=attempts,
        unread=unread,
        unread_count=unread_count,
        set_aside=set_aside,
        children=list(children),
        has_more_children=children.cursor is not None,
        shown_bytes=shown_bytes,
        streams=streams,
    )


async def _detail_by(views: RunViews, namespace: str, run_id: str, most_unread: int) -> RunDetail:
    """The same over a server, which names no streams but those that are asked for."""
    info = await views.describe(namespace, run_id)
    children = await views.page(RunFilter(namespace, parent_id=run_id, limit=MOST_CHILDREN), None, None)
    events = [event async for event in views.events(namespace, run_id, WantedEvents())]
    unread = await views.unread(namespace, run_id)
    failed = [event for event in events if event.kind in {"ActivityFailed", "ChildFailed"}]
    return RunDetail(
        info=info,
        parent=None if info.parent_id is None else (await views.exact(namespace, info.parent_id)).workflow_id,
        first=events[0] if events else None,
        last=events[-1] if events else None,
        trouble=None,
        causes=_causes(info.error or "", failed),
        attempts=await views.attempts(namespace, run_id),
        unread=unread[:most_unread],
        unread_count=len(unread),
        set_aside=await views.set_aside(namespace, run_id),
        children=list(children),
        has_more_children=children.cursor is not None,
        shown_bytes=(await views.snapshot(namespace, run_id)).size,
    )


async def _id_of(engine: Engine, namespace: str, run_id: str | None) -> str | None:
    if run_id is None:
        return None
    try:
        return (await engine.reader.read(namespace, run_id)).workflow_id
    except RunNotFound:
        return None
    except RunUnreadable as error:
        return error.rest.workflow_id if isinstance(error.rest, RunRow) else None


def _causes(error: str, failed: list[RunEvent]) -> list[RunEvent]:
    """The activities and children whose errors ended the run: the last that failed so, or all those in a group."""
    if error.startswith("ExceptionGroup: "):
        # A group names its errors by their types without modules.
        return [event for event in failed if _without_module(error_in(event.body)) in error]
    return [event for event in failed if error_in(event.body) == visible(error)][-1:]


def _without_module(error: str) -> str:
    kind, colon, message = error.partition(":")
    return f"{kind.rpartition('.')[2]}{colon}{message}"
