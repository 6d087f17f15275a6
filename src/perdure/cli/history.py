"""Events and waits in words.

In:   events and waits of a run.
Out:  a mark, a title and a detail for each, for tables and for progress.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple

from perdure.cli.output import compact, counted, distance, span

if TYPE_CHECKING:
    from perdure.app import RunEvent, Wait


# A frame of ours and its lines of code; inside an exception group each line begins with the group's bars.
OUR_FRAMES = re.compile(
    r'^(?P<bars>[ |]*)  File "[^"]*/perdure/(?:worker|authoring)/[^"]*", line .*\n(?:(?P=bars)    (?!\|).*\n)*',
    re.MULTILINE,
)
LONGEST_ARGUMENTS = 60


class Line(NamedTuple):
    """An event as people read it."""

    mark: str
    style: str
    title: str
    detail: str


def line_of(event: "RunEvent") -> Line:  # noqa: PLR0911 - one for each kind
    """What an event says."""
    body = event.body
    match event.kind:
        case "RunStarted":
            return Line("▶", "bold", "started", f"{body['workflow']} {compact(body['input'])}")
        case "ActivityCompleted":
            return Line("✓", "green", str(body["name"]), f"→ {compact(body['result'])}{_effort(event)}")
        case "ActivityFailed":
            return Line("✗", "red", str(body["name"]), f"{error_in(body)}{_effort(event)}")
        case "TimerFired":
            return Line("◷", "cyan", "timer", f"was due at {_clock(body['fire_at'])}")
        case "SignalReceived":
            return Line("✉", "magenta", f"signal {body['name']}", f"← {compact(body['payload'])}")
        case "ValueRecorded":
            return Line("✎", "cyan", "value", f"→ {compact(body['value'])}")
        case "RunCompleted":
            return Line("✓", "bold green", "completed", f"→ {compact(body['result'])}")
        case "RunFailed":
            return Line("✗", "bold red", "failed", error_in(body))
        case kind:
            return Line("•", "", kind, compact(body) if body else "")


def arguments_in(event: "RunEvent") -> str:
    """What an activity was given, in short; nothing when it takes nothing."""
    given = event.body.get("arguments")
    return compact(given, LONGEST_ARGUMENTS) if given else ""


def place_in(event: "RunEvent") -> str:
    """The place of an event, where it says more than the event's name does."""
    name = event.body.get("name", "")
    return "" if event.place in {name, f"signal({name})", "timer()"} else event.place


def error_in(body: Mapping[str, object]) -> str:
    """The error in an event's body, as `Type: text`."""
    failure = body.get("failure")
    if not isinstance(failure, Mapping):
        return "failed"
    name = str(failure.get("type", "error")).removeprefix("builtins.")
    return f"{name}: {failure['message']}" if failure.get("message") else name


def traceback_in(body: Mapping[str, object]) -> str:
    """The traceback of the error in an event's body, if it was kept; the user's own code only."""
    failure = body.get("failure")
    return OUR_FRAMES.sub("", str(failure.get("traceback") or "")) if isinstance(failure, Mapping) else ""


def wait_texts(waits: "Iterable[Wait]", when: Callable[[datetime], str] = distance) -> list[str]:
    """What a run waits for, each with its moment; timers last, for they often limit the wait for another."""
    return [_wait_text(wait, when) for wait in sorted(waits, key=lambda wait: wait.kind == "timer")]


def _wait_text(wait: "Wait", when: Callable[[datetime], str]) -> str:
    due = "" if wait.until is None else f" due {when(wait.until)}"
    match wait.kind:
        case "timer":
            return f"timer{due}"
        case "side_effect":
            text = "a side effect"
        case kind:
            text = f"{kind} {wait.name or wait.place}"
    if wait.failed_attempts:
        return f"{text}, {counted(wait.failed_attempts, 'failed attempt')}{due and f', next{due}'}"
    return f"{text}{due and f',{due}'}"


def _effort(event: "RunEvent") -> str:
    """How long the last attempt took, and how many there were."""
    started_at, attempts = event.body.get("started_at"), event.body.get("attempts", 1)
    parts = []
    if isinstance(started_at, int):
        parts.append(span(event.at - _moment(started_at)))
    if isinstance(attempts, int) and attempts > 1:
        parts.append(f"{attempts} attempts")
    return f"  ({', '.join(parts)})" if parts else ""


def _clock(ms: object) -> str:
    return f"{_moment(ms).astimezone():%H:%M:%S}" if isinstance(ms, int) else str(ms)


def _moment(ms: int) -> datetime:
    return datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=ms)
