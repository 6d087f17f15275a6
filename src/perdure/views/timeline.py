"""The timeline of a run: its events as they come, and events and waits in words.

In:   the engine and a run; events and waits.
Out:  events as views; a mark, a title and a detail for each, for tables, progress and pages.
"""

import re
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import aclosing
from datetime import datetime
from typing import NamedTuple

from perdure.engine.ports import Engine
from perdure.errors import RunUnreadable
from perdure.kernel.traits import TASK_PREFIX
from perdure.views.run import RunEvent, Wait, event_view
from perdure.views.run import moment as engine_moment
from perdure.views.words import compact, counted, distance, span, visible

EVENTS_PAGE = 500

# A frame of ours and its lines of code; inside an exception group each line begins with the group's bars.
OUR_FRAMES = re.compile(
    r'^(?P<bars>[ |]*)  File "[^"]*/perdure/(?:worker|authoring)/[^"]*", line .*\n(?:(?P=bars)    (?!\|).*\n)*',
    re.MULTILINE,
)
LONGEST_ARGUMENTS = 60


async def history_of(
    engine: Engine, namespace: str, run_id: str, after: int = 0, *, follow: bool = False, most: int = EVENTS_PAGE
) -> AsyncGenerator[RunEvent, None]:
    """The events after this number, in order, read at most so many at once; `follow` goes on until the run has ended.

    RunUnreadable where an event cannot be read, after those before it.
    """
    size = most
    while True:
        # Looked at first: what is written after this look is read by the next one.
        is_over = not follow or (await engine.reader.read(namespace, run_id)).closed_at is not None
        try:
            page = await engine.reader.events(namespace, run_id, after, size)
        except RunUnreadable:
            if size == 1:
                raise
            size = 1
            continue
        for event in page:
            yield event_view(event)
            after = event.seq
        if len(page) < size:
            if is_over:
                return
            await engine.outputs.wait_for_event(run_id, after)


class WantedEvents(NamedTuple):
    """Which events of a run: those after a number and before another one, at most so many, from which end."""

    after: int = 0
    before: int | None = None
    limit: int | None = None
    newest_first: bool = False
    follow: bool = False


async def wanted_events(
    engine: Engine, namespace: str, run_id: str, wanted: WantedEvents
) -> AsyncGenerator[RunEvent, None]:
    """These events of a run; no more is read than a page beyond them."""
    if wanted.newest_first:
        async with aclosing(_latest(engine, namespace, run_id, wanted)) as latest:
            async for event in latest:
                yield event
        return
    most = EVENTS_PAGE if wanted.limit is None else min(EVENTS_PAGE, wanted.limit)
    left = wanted.limit
    whole = history_of(engine, namespace, run_id, wanted.after, follow=wanted.follow, most=most)
    async with aclosing(whole) as history:
        async for event in history:
            if wanted.before is not None and event.seq >= wanted.before:
                return
            yield event
            left = None if left is None else left - 1
            if left == 0:
                return


async def _latest(engine: Engine, namespace: str, run_id: str, wanted: WantedEvents) -> AsyncGenerator[RunEvent, None]:
    """The events between two numbers, the newest first, at most so many; only those are read.

    RunUnreadable where an event cannot be read, after those behind it.
    """
    top = await _last_seq(engine, namespace, run_id)
    top = top if wanted.before is None else min(top, wanted.before - 1)
    left = top - wanted.after if wanted.limit is None else min(wanted.limit, top - wanted.after)
    size = EVENTS_PAGE
    while left > 0:
        count = min(size, left)
        try:
            page = await engine.reader.events(namespace, run_id, top - count, count)
        except RunUnreadable:
            if size == 1:
                raise
            size = 1
            continue
        for event in reversed(page):
            yield event_view(event)
        top, left = top - count, left - count


async def _last_seq(engine: Engine, namespace: str, run_id: str) -> int:
    row = await engine.reader.read(namespace, run_id)
    if row.closed_at is not None and row.last_seq is not None:
        return row.last_seq
    last = await engine.reader.last_event(run_id)
    return 1 if last is None else last[0]


class Line(NamedTuple):
    """An event as people read it."""

    mark: str
    style: str
    title: str
    detail: str


def line_of(event: RunEvent) -> Line:
    """What an event says."""
    told = LINES.get(event.kind)
    return Line("•", "", event.kind, compact(event.body) if event.body else "") if told is None else told(event)


def _started(event: RunEvent) -> Line:
    return Line("▶", "bold", "started", f"{event.body['workflow']} {compact(input_in(event.body))}")


def _activity_completed(event: RunEvent) -> Line:
    return Line("✓", "green", str(event.body["name"]), f"→ {compact(event.body['result'])}{_effort(event)}")


def _activity_failed(event: RunEvent) -> Line:
    return Line("✗", "red", str(event.body["name"]), f"{error_in(event.body)}{_effort(event)}")


def _timer_fired(event: RunEvent) -> Line:
    return Line("◷", "cyan", "timer", f"was due at {_clock(event.body['fire_at'])}")


def _signal_received(event: RunEvent) -> Line:
    return Line("✉", "magenta", f"signal {event.body['name']}", f"← {compact(event.body['payload'])}")


def _deferred_resolved(event: RunEvent) -> Line:
    return Line("✉", "magenta", f"deferred {event.body['name']}", f"← {compact(event.body['value'])}")


def _deferred_failed(event: RunEvent) -> Line:
    return Line("✗", "red", f"deferred {event.body['name']}", visible(str(event.body["error"])))


def _request_received(event: RunEvent) -> Line:
    return Line("?", "magenta", f"request {event.body['name']}", f"← {compact(event.body['value'])}")


def _value_recorded(event: RunEvent) -> Line:
    return Line("✎", "cyan", "value", f"→ {compact(event.body['value'])}")


def _result_given(event: RunEvent) -> Line:
    return Line("✎", "yellow", event.place, f"→ {compact(event.body['value'])}  given by hand")


def _child_completed(event: RunEvent) -> Line:
    return Line("✓", "green", f"child {event.body['child_id']}", f"→ {compact(event.body['result'])}")


def _child_failed(event: RunEvent) -> Line:
    return Line("✗", "red", f"child {event.body['child_id']}", error_in(event.body))


def _cancel_requested(event: RunEvent) -> Line:
    until = event.body.get("close_at")
    limit = "" if until is None else f"  closed at {_clock(until)} whatever it does"
    return Line("⚠", "yellow", "asked to stop", f"{reason_in(event.body)}{limit}")


def _timeout_reached(event: RunEvent) -> Line:
    return Line("⚠", "yellow", "out of time", f"{reason_in(event.body)}; what it has done is undone")


def _patched(event: RunEvent) -> Line:
    return Line("✎", "cyan", f"change {event.body['change_id']}", "takes the new way")


def _completed(event: RunEvent) -> Line:
    return Line("✓", "bold green", "completed", f"→ {compact(event.body['result'])}")


def _failed(event: RunEvent) -> Line:
    return Line("✗", "bold red", "failed", error_in(event.body))


def _cancelled(event: RunEvent) -> Line:
    return Line("✗", "bold magenta", "cancelled", reason_in(event.body))


def _terminated(event: RunEvent) -> Line:
    return Line("✗", "bold magenta", "terminated", reason_in(event.body))


def _timed_out(event: RunEvent) -> Line:
    return Line("✗", "bold red", "timed out", reason_in(event.body))


def _continued(event: RunEvent) -> Line:
    return Line("→", "bold", "continued", f"as {event.body['run_id']}")


LINES: dict[str, Callable[[RunEvent], Line]] = {
    "RunStarted": _started,
    "ActivityCompleted": _activity_completed,
    "ActivityFailed": _activity_failed,
    "TimerFired": _timer_fired,
    "SignalReceived": _signal_received,
    "DeferredResolved": _deferred_resolved,
    "DeferredFailed": _deferred_failed,
    "RequestReceived": _request_received,
    "ValueRecorded": _value_recorded,
    "ResultGiven": _result_given,
    "ChildCompleted": _child_completed,
    "ChildFailed": _child_failed,
    "CancelRequested": _cancel_requested,
    "TimeoutReached": _timeout_reached,
    "Patched": _patched,
    "RunCompleted": _completed,
    "RunFailed": _failed,
    "RunCancelled": _cancelled,
    "RunTerminated": _terminated,
    "RunTimedOut": _timed_out,
    "RunContinued": _continued,
}


def arguments_in(event: RunEvent) -> str:
    """What an activity was given, in short; nothing when it takes nothing."""
    given = event.body.get("arguments")
    return compact(given, LONGEST_ARGUMENTS) if given else ""


def place_in(event: RunEvent) -> str:
    """The place of an event, where it says more than the event's name does."""
    body = event.body
    name = body.get("name") or (body.get("workflow") if event.kind.startswith("Child") else "")
    return (
        ""
        if event.place in {name, f"signal({name})", f"deferred({name})", f"request({name})", "timer()"}
        else event.place
    )


def input_in(body: Mapping[str, object]) -> object:
    """What a run was started with; of a task only its activity's arguments, without how it is to be tried."""
    given = body["input"]
    is_task = str(body["workflow"]).startswith(TASK_PREFIX)
    return given["arguments"] if is_task and isinstance(given, Mapping) and "arguments" in given else given


def error_in(body: Mapping[str, object]) -> str:
    """The error in an event's body, as `Type: text`."""
    failure = body.get("failure")
    if not isinstance(failure, Mapping):
        return "failed"
    name = str(failure.get("type", "error")).removeprefix("builtins.")
    return visible(f"{name}: {failure['message']}" if failure.get("message") else name)


def reason_in(body: Mapping[str, object]) -> str:
    """Why a run was stopped, if a reason was given."""
    return visible(str(body.get("reason") or ""))


def traceback_in(body: Mapping[str, object]) -> str:
    """The traceback of the error in an event's body, if it was kept; the user's own code only."""
    failure = body.get("failure")
    if not isinstance(failure, Mapping):
        return ""
    return visible(OUR_FRAMES.sub("", str(failure.get("traceback") or "")))


def wait_texts(waits: Iterable[Wait], when: Callable[[datetime], str] = distance) -> list[str]:
    """What a run waits for, each with its moment; timers last, for they often limit the wait for another."""
    return [_wait_text(wait, when) for wait in sorted(waits, key=lambda wait: wait.kind == "timer")]


def _wait_text(wait: Wait, when: Callable[[datetime], str]) -> str:
    due = "" if wait.until is None else f" due {when(wait.until)}"
    match wait.kind:
        case "timer":
            return f"timer{due}"
        case "rest":
            return f"its next try,{due}: {wait.reason}"
        case "worker" if wait.since is not None:
            return f"a worker, since {when(wait.since)}: {wait.reason}"
        case "side_effect":
            text = "a side effect"
        case "interrupted":
            text = "a request to stop"
        case kind:
            queue = "" if wait.queue is None else f" on queue {wait.queue}"
            text = f"{kind} {wait.name or wait.place}{queue}{(wait.reason and f' ({wait.reason})') or ''}"
    if wait.beat_at is not None:
        text = f"{text}, heard of {when(wait.beat_at)}{'' if wait.details is None else f': {compact(wait.details)}'}"
    if wait.failed_attempts:
        return f"{text}, {counted(wait.failed_attempts, 'failed attempt')}{due and f', next{due}'}"
    return f"{text}{due and f',{due}'}"


def _effort(event: RunEvent) -> str:
    """How long the last attempt took, and how many there were."""
    started_at, attempts = event.body.get("started_at"), event.body.get("attempts", 1)
    parts = []
    if isinstance(started_at, int):
        parts.append(span(event.at - engine_moment(started_at)))
    if isinstance(attempts, int) and attempts > 1:
        parts.append(f"{attempts} attempts")
    return f"  ({', '.join(parts)})" if parts else ""


def _clock(ms: object) -> str:
    return f"{engine_moment(ms).astimezone():%H:%M:%S}" if isinstance(ms, int) else str(ms)
