"""A dossier: all that is to be known about one run.

In:   an open client and a run.
Out:  the run as it stands, the ends of its history, what failed, what has come for it, what it has started.
A history may be long; only what is shown of it is kept.
"""

from typing import TYPE_CHECKING, Any, NamedTuple

import perdure
from perdure.cli.history import error_in, input_in
from perdure.cli.output.errors import warn
from perdure.cli.output.tables import visible
from perdure.errors import RunNotFound, RunUnreadable

if TYPE_CHECKING:
    from perdure.app import FailedAttempt, RunEvent, RunInfo, UnreadMessage

MOST_CHILDREN = 20


class Dossier(NamedTuple):
    """What `perdure show` tells; `parent` is the id of the run that started this one.

    Of a history that cannot be read to its end, `last` is the last event before that; none, if it is the first.
    """

    info: "RunInfo"
    parent: str | None
    first: "RunEvent | None"
    last: "RunEvent | None"
    is_whole: bool
    causes: "list[RunEvent]"
    attempts: "list[FailedAttempt]"
    unread: "list[UnreadMessage]"
    set_aside: "list[UnreadMessage]"
    children: "list[RunInfo]"
    has_more_children: bool

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


async def collected(app: "perdure.Perdure", run: "perdure.Run[Any]") -> Dossier:
    """Everything about a run."""
    info = await run.describe()
    children = await run.children(limit=MOST_CHILDREN)
    failed, first, last, is_whole = [], None, None, False
    attempts: list[FailedAttempt] = []
    unread: list[UnreadMessage] = []
    set_aside: list[UnreadMessage] = []
    try:
        async for last in run.events():
            first = first or last
            if last.kind in {"ActivityFailed", "ChildFailed"}:
                failed.append(last)
        is_whole = True
        attempts = await run.attempts()
        unread = await run.unread()
        set_aside = await run.set_aside()
    except RunUnreadable as error:
        # What can be read of it is shown all the same.
        warn(str(error))
    return Dossier(
        info=info,
        parent=await _id_of(app, info.parent_id),
        first=first,
        last=last,
        is_whole=is_whole,
        causes=_causes(info.error or "", failed),
        attempts=attempts,
        unread=unread,
        set_aside=set_aside,
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
