"""A dossier: all that is to be known about one run.

In:   an open client and a run.
Out:  the run as it stands, the ends of its history, what failed, what has come for it, what it has started.
A history may be long; only what is shown of it is kept.
"""

from typing import TYPE_CHECKING, Any, NamedTuple

import perdure
from perdure.cli.exits import warn
from perdure.cli.history import error_in
from perdure.cli.output import visible
from perdure.errors import RunNotFound, RunUnreadable

if TYPE_CHECKING:
    from perdure.app import FailedAttempt, RunEvent, RunInfo, UnreadMessage

MOST_CHILDREN = 20


class Dossier(NamedTuple):
    """What `perdure show` tells; `parent` is the id of the run that started this one."""

    info: "RunInfo"
    parent: str | None
    first: "RunEvent"
    last: "RunEvent"
    events: int
    causes: "list[RunEvent]"
    attempts: "list[FailedAttempt]"
    unread: "list[UnreadMessage]"
    children: "list[RunInfo]"
    has_more_children: bool


async def collected(app: "perdure.Perdure", run: "perdure.Run[Any]") -> Dossier:
    """Everything about a run."""
    info = await run.describe()
    children = await run.children(limit=MOST_CHILDREN)
    failed, history = [], run.events()
    first = last = await anext(history)
    attempts: list[FailedAttempt] = []
    unread: list[UnreadMessage] = []
    try:
        async for last in history:
            if last.kind in {"ActivityFailed", "ChildFailed"}:
                failed.append(last)
        attempts = await run.attempts()
        unread = await run.unread()
    except RunUnreadable as error:
        # What can be read of it is shown all the same.
        warn(str(error))
    return Dossier(
        info=info,
        parent=await _id_of(app, info.parent_id),
        first=first,
        last=last,
        events=last.seq,
        causes=_causes(info.error or "", failed),
        attempts=attempts,
        unread=unread,
        children=list(children),
        has_more_children=children.cursor is not None,
    )


async def _id_of(app: "perdure.Perdure", run_id: str | None) -> str | None:
    if run_id is None:
        return None
    try:
        return (await app.get(run_id=run_id)).id
    except (RunNotFound, RunUnreadable):
        return None


def _causes(error: str, failed: "list[RunEvent]") -> "list[RunEvent]":
    """The activities and children whose errors ended the run: the last that failed so, or all those in a group."""
    if error.startswith("ExceptionGroup: "):
        # A group names its errors by their types without modules.
        return [event for event in failed if _without_module(error_in(event.body)) in error]
    return [event for event in failed if error_in(event.body) == visible(error)][-1:]


def _without_module(error: str) -> str:
    kind, colon, message = error.partition(":")
    return f"{kind.rpartition('.')[2]}{colon}{message}"
