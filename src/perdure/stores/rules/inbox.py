"""Inboxes: how messages are put into them, and handed on to the run that continues another one.

In:   operations on messages.
Out:  questions to the database; for each message its number, or why it was not put there.
"""

from collections.abc import Callable, Sequence
from typing import TypeAlias

import msgspec

from perdure.kernel.messages import DeferredFailure, DeferredResult, RequestSent, SignalSent
from perdure.kernel.status import Status
from perdure.stores.answers import (
    APPLIED,
    Answer,
    Answers,
    Applied,
    Closed,
    Differs,
    Full,
    Missing,
    Posted,
    answer_group,
)
from perdure.stores.operations import MoveMessages, PostDelayed, PostMessage, TellRun
from perdure.stores.rules.questions import ManyRows, Query, Steps

# What callers send to code that waits for it; it does not end a delay.
SENT = frozenset(kind.__name__ for kind in (SignalSent, DeferredResult, DeferredFailure, RequestSent))
# What ids of callers begin with: under one of them a message counts once, whenever it is sent again.
OF_CALLERS = ("signal:", "deferred:", "request:")
# Another one under the same id is refused, wherever the first one is by now.
ASKED = RequestSent.__name__
# What a run gets once: another one is refused, the same one again changes nothing.
WRITE_ONCE = frozenset(kind.__name__ for kind in (DeferredResult, DeferredFailure))

Post: TypeAlias = PostMessage | PostDelayed | TellRun
# The messages that came for each run.
New: TypeAlias = dict[str, list[Post]]


def post_messages(posts: Sequence[tuple[int, Post]], answers: Answers) -> Steps[None]:
    """Put messages into inboxes and make their runs ripe; each is answered with its number, or why it is not there."""
    yield from _post(posts, answers, _count_posted)


def post_delayed(posts: Sequence[tuple[int, Post]], answers: Answers) -> Steps[None]:
    """The same with messages that are due later: their runs sleep until then, at the longest."""
    yield from _post(posts, answers, _count_delayed)


def _post(
    posts: Sequence[tuple[int, Post]], answers: Answers, count: Callable[[New], Steps[dict[str, int]]]
) -> Steps[None]:
    found = yield ManyRows("post_messages", _with_room(posts))
    inserted = {(run_id, message_id): number for number, run_id, message_id, *_ in found.rows}
    # Of a message that is posted twice in one batch the first is answered with its number.
    new: New = {}
    posted: list[tuple[int, str, int, int]] = []
    unposted: list[tuple[int, Post]] = []
    for index, post in posts:
        number = inserted.pop((post.run_id, post.message_id), None)
        if number is None:
            unposted.append((index, post))
        else:
            to_run = new.setdefault(post.run_id, [])
            to_run.append(post)
            posted.append((index, post.run_id, number, len(to_run)))
    if new:
        counts = yield from count(new)
        for index, run_id, number, nth in posted:
            before = counts[run_id] - len(new[run_id])
            answer_group(answers, index, Applied(Posted(number, before + nth)))
    if unposted:
        yield from answer_unposted(unposted, answers)


def _count_posted(new: New) -> Steps[dict[str, int]]:
    """How many messages each run has had, now that these have come; they are ripe for them."""
    return dict((yield ManyRows("count_posted", _told(new))).rows)


def _count_delayed(new: New) -> Steps[dict[str, int]]:
    """The same where they are ripe when the first of these is due."""
    counts: dict[str, int] = {}
    for run_id, posts in new.items():
        due_at = min(post.due_at for post in posts if isinstance(post, PostDelayed))
        told = {"run_id": run_id, "count": len(posts), "due_at": due_at}
        ((counts[run_id],),) = (yield Query("count_delayed", told)).rows
    return counts


def _with_room(posts: Sequence[tuple[int, Post]]) -> list[Sequence[object]]:
    """The rows of messages, in order; of those that may be refused how many others may be unread, at most."""
    earlier: dict[str, int] = {}
    rows: list[Sequence[object]] = []
    for place, (_, post) in enumerate(posts):
        room = None
        if not isinstance(post, TellRun) and post.most is not None:
            before = earlier.get(post.run_id, 0)
            earlier[post.run_id] = before + 1
            room = post.most - before
        rows.append((*post[:5], place, room))
    return rows


def _told(new: New) -> list[Sequence[object]]:
    """Of each run how many messages came, whether all of them are what callers send, and when the first of them did."""
    return [
        (run_id, len(posts), all(post.kind in SENT for post in posts), min(post.at for post in posts))
        for run_id, posts in new.items()
    ]


def answer_unposted(unposted: Sequence[tuple[int, Post]], answers: Answers) -> Steps[None]:
    """Why messages were not put into inboxes; those whose run turns out to have room after all are put there now."""
    again: list[tuple[int, Post]] = []
    counted: dict[str, bool] = {}
    for index, post in unposted:
        answer = yield from _unposted(post)
        if isinstance(answer, Full):
            if post.run_id not in counted:
                counted[post.run_id] = yield from _is_full(post.run_id, answer.most)
            if not counted[post.run_id]:
                again.append((index, post))
                continue
        answer_group(answers, index, answer)
    if at_once := [each for each in again if not isinstance(each[1], PostDelayed)]:
        yield from post_messages(at_once, answers)
    if delayed := [each for each in again if isinstance(each[1], PostDelayed)]:
        yield from post_delayed(delayed, answers)


def _unposted(post: Post) -> Steps[Answer]:
    """Why a message was not put into an inbox: it is there already, nobody is there to read it, or it may be full."""
    found = (yield Query("find_message", {"run_id": post.run_id, "message_id": post.message_id})).first
    if found is not None and post.kind == ASKED and not _is_same(post, *found[1:]):
        return Differs()
    if found is not None and post.kind not in WRITE_ONCE:
        return Applied(Posted(found[0], None))
    if isinstance(post, TellRun):
        return APPLIED
    run = (yield Query("run_status", {"run_id": post.run_id})).first
    if run is None:
        return Missing()
    status, has_ended = run
    # What a run was given before it continued says nothing of the run that goes on in its place.
    if found is not None and status != Status.CONTINUED:
        return Applied(Posted(found[0], None)) if _is_same(post, *found[1:]) else Differs()
    return Closed(status) if has_ended or post.most is None else Full(post.most)


def _is_same(post: Post, kind: str, body: str) -> bool:
    """Whether a message says what another one said, in whatever order."""
    return post.kind == kind and (post.body == body or _in_order(post.body) == _in_order(body))


def _in_order(body: str) -> bytes:
    return msgspec.json.encode(msgspec.json.decode(body), order="sorted")


def _is_full(run_id: str, most: int) -> Steps[bool]:
    """Whether a run has so many unread messages; they are counted, and what was counted is remembered in its row."""
    ((unread,),) = (yield Query("count_unread", {"run_id": run_id, "most": most})).rows
    yield Query("note_unread", {"run_id": run_id, "unread": unread})
    return bool(unread >= most)


# Successors


def move_messages(move: MoveMessages) -> Steps[None]:
    """Hand what a run has not read, and any request to stop it, to the run that continues it."""
    moved = 0
    for name in ("move_messages", "move_known"):
        moved += (yield Query(name, move._asdict())).count
    if moved:
        yield Query("count_messages", {"to_run_id": move.to_run_id})
    if (yield Query("carry_outside", move._asdict())).count:
        yield Query("forget_attributes", {"to_run_id": move.to_run_id})
        yield Query("copy_attributes", move._asdict())
