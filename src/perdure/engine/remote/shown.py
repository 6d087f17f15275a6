"""What people are shown of a run, as its remote worker says it: refused when nobody could read it.

In:   what a run waits for, has to undo, is held for; how far its activities say they are.
Out:  nothing, or BadField: else whoever looks at the run next finds that its row is damaged.
"""

from typing import Any

import msgspec

from perdure.errors import BadField


class ShownWait(msgspec.Struct):
    """Something that a run waits for; what a version to come says besides is not for this one."""

    kind: str
    place: str
    name: str | None = None
    until: int | None = None
    since: int | None = None
    failed_attempts: int = 0
    queue: str | None = None
    run_id: str | None = None
    reason: str | None = None


class ShownUndo(msgspec.Struct):
    """Something that a run has to undo, or has undone."""

    name: str | None
    state: str
    error: str | None = None


def check_waiting(kind: str, waiting: msgspec.Raw) -> None:
    """Refuse waits that could not be shown."""
    try:
        msgspec.json.decode(waiting, type=list[ShownWait])
    except (msgspec.MsgspecError, RecursionError) as error:
        raise BadField(kind, f"waiting is no list of {{kind, place, name, until}}: {error}") from None


def check_undo(kind: str, undo: str | None) -> None:
    """Refuse the text of what is to be undone when it could not be shown."""
    try:
        msgspec.json.decode(undo or "[]", type=list[ShownUndo])
    except (msgspec.MsgspecError, RecursionError) as error:
        raise BadField(kind, f"undo is no list of {{name, state, error}}: {error}") from None


def check_report(kind: str, text: str) -> None:
    """Refuse a report that could not be shown."""
    try:
        report: Any = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        raise BadField(kind, f"the report is no JSON: {error}") from None
    if not isinstance(report, dict):
        raise BadField(kind, "the report is no object; what happened is its `trouble`")


def check_details(kind: str, details: str | None) -> None:
    """Refuse details of an activity that could not be shown."""
    try:
        msgspec.json.decode("null" if details is None else details)
    except (msgspec.DecodeError, RecursionError) as error:
        raise BadField(kind, f"the details are no JSON: {error}") from None
