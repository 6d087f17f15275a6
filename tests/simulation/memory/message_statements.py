"""Statements on inboxes: messages are put, taken, and handed over to a successor."""

from collections.abc import Sequence

from msgspec.structs import replace

from perdure.stores.answers import APPLIED, Answer, Applied, Closed, Full, Missing, Posted
from perdure.stores.operations import MoveMessages, PostMessage, TakeMessage, TellRun
from perdure.stores.records import RunRow
from perdure.stores.rules.sorting import answer_group
from tests.simulation.memory.run_statements import find_run, find_runs
from tests.simulation.memory.tables import InboxRow
from tests.simulation.memory.view import Progress, Refused, Steps, View

_POST = Progress("post_messages")
_COUNT = Progress("count_posted")
_MOVE = Progress("move_messages")
_MOVE_KNOWN = Progress("move_known")
_COUNT_MOVED = Progress("count_messages")

_MOVED_KINDS = ("SignalSent", "CancelRequest", "TerminateRequest")
_MOST_KNOWN = 1000

Posts = Sequence[tuple[int, PostMessage | TellRun]]
Numbers = dict[tuple[str, str], int]


def post_messages(view: View, posts: Posts, answers: dict[int, Answer]) -> Steps[None]:
    """Put messages into the inboxes of open runs, in order; those that are there already are not put twice."""
    inserted = yield from _insert(view, posts)
    yield _POST
    new: dict[str, list[PostMessage | TellRun]] = {}
    counts: list[tuple[int, PostMessage | TellRun, int, int]] = []
    for index, post in posts:
        # Whoever posts the same twice in one batch is answered by the first.
        number = inserted.pop((post.run_id, post.message_id), None)
        if number is None:
            answer_group(answers, index, _unposted(view, post))
        else:
            to_run = new.setdefault(post.run_id, [])
            to_run.append(post)
            counts.append((index, post, number, len(to_run)))
    if new:
        before = {run_id: _count(view, run_id, told) for run_id, told in new.items()}
        for index, post, number, place in counts:
            answer_group(answers, index, Applied(Posted(number, before[post.run_id] + place)))
        yield _COUNT


def _insert(view: View, posts: Posts) -> Steps[Numbers]:
    run_ids = sorted({post.run_id for _, post in posts})
    rows = yield from find_runs(view, run_ids, lambda row: row.closed_at is None)
    namespaces = {row.run_id: row.namespace for row in rows}
    inserted: Numbers = {}
    for _, post in posts:
        if post.run_id not in namespaces or _is_full(view, post):
            continue
        # Also one that turns out to be there already has taken a number.
        number = view.take_number()
        key = (post.run_id, post.message_id)
        if view.message_ids.is_taken(key):
            yield from view.message_ids.wait(key)
        if view.message_ids.get(key) is None:
            namespace = namespaces[post.run_id]
            row = InboxRow(number, namespace, post.run_id, post.message_id, post.kind, post.body, post.at)
            view.message_ids.put(key, number)
            view.inbox.put(number, row)
            inserted[key] = number
    return inserted


def _unposted(view: View, post: PostMessage | TellRun) -> Answer:
    """Why a message was not put into an inbox: it is there already, or nobody is there to read it."""
    found = view.message_ids.get((post.run_id, post.message_id))
    if found is not None:
        return Applied(Posted(found, None))
    if isinstance(post, TellRun):
        return APPLIED
    row = view.runs.get(post.run_id)
    if row is None:
        return Missing()
    return Closed(row.status) if row.closed_at is not None or post.most is None else Full(post.most)


def _is_full(view: View, post: PostMessage | TellRun) -> bool:
    """Whether the run has as many unread messages as it may; ends of children and requests to stop are always taken."""
    if isinstance(post, TellRun) or post.most is None:
        return False
    return sum(row.taken_by is None for row in view.messages_of(post.run_id)) >= post.most


def _count(view: View, run_id: str, posts: list[PostMessage | TellRun]) -> int:
    """Tell the run how many messages came and make it ripe; signals do not end a delay. Answers how many it had."""
    row = view.runs.get(run_id)
    assert row is not None
    at = min(post.at for post in posts)
    if _is_delayed(view, row, at) and all(post.kind == "SignalSent" for post in posts):
        wake_at = row.wake_at
    else:
        at_once = view.at_once(at)
        wake_at = at_once if row.wake_at is None else min(row.wake_at, at_once)
    view.runs.put(run_id, replace(row, messages=row.messages + len(posts), wake_at=wake_at))
    return row.messages


def _is_delayed(view: View, row: RunRow, at: int) -> bool:
    """Whether the delay of a run is not over; with turns it has its time still, whatever the sender's clock says."""
    if row.begun_at is not None or row.delayed_until is None:
        return False
    return row.wake_at is not None if view.tables.has_turns else row.delayed_until > at


def take_messages(view: View, takes: Sequence[TakeMessage]) -> Steps[None]:
    for number, taken_by in takes:
        if view.inbox.get(number) is None:
            continue
        if view.inbox.is_taken(number):
            yield from view.inbox.wait(number)
        row = view.inbox.get(number)
        assert row is not None
        view.inbox.put(number, replace(row, taken_by=taken_by))


# Successors


def move_messages(view: View, move: MoveMessages) -> Steps[None]:
    """What a run has not read goes to its successor, with the ids of its last signals and any request to stop."""
    unread = [row for row in view.messages_of(move.run_id) if row.taken_by is None and row.kind in _MOVED_KINDS]
    moved = yield from _move(view, unread, move)
    yield _MOVE
    known = [row for row in view.messages_of(move.run_id) if row.taken_by is not None and _has_id(row)]
    moved += yield from _move(view, known[-_MOST_KNOWN:], move)
    yield _MOVE_KNOWN
    if moved:
        yield from _count_moved(view, move.to_run_id)
        yield _COUNT_MOVED
    yield from _carry_cancel(view, move)


def _has_id(row: InboxRow) -> bool:
    """Whether it is a signal that was sent under an id."""
    return row.message_id.startswith("signal:")


def _move(view: View, rows: list[InboxRow], move: MoveMessages) -> Steps[int]:
    moved = 0
    for expected in rows:
        yield from view.inbox.wait(expected.number)
        row = view.inbox.get(expected.number)
        assert row is not None
        if row.run_id != move.run_id or (row.taken_by is None) != (expected.taken_by is None):
            continue
        moved += 1
        if move.to_run_id != move.run_id:
            key = (move.to_run_id, row.message_id)
            yield from view.message_ids.wait(key)
            if view.message_ids.get(key) is not None:
                raise Refused(f"run {move.to_run_id} has a message {row.message_id} already")
            view.message_ids.put((row.run_id, row.message_id), None)
            view.message_ids.put(key, row.number)
            view.inbox.put(row.number, replace(row, run_id=move.to_run_id))
    return moved


def _count_moved(view: View, run_id: str) -> Steps[None]:
    row = yield from find_run(view, run_id, lambda _: True)
    if row is not None:
        view.runs.put(run_id, replace(row, messages=row.messages + len(view.messages_of(run_id))))


def _carry_cancel(view: View, move: MoveMessages) -> Steps[None]:
    """A request to stop, and the end it set, hold for the run that continues."""

    def asked() -> RunRow | None:
        row = view.runs.get(move.run_id)
        return None if row is None or row.cancel_requested_at is None else row

    if asked() is None:
        return
    row = yield from find_run(view, move.to_run_id, lambda _: True)
    before = asked()
    if row is None or before is None:
        return
    is_cancelled = before.close_as == "CANCELLED"
    carried = replace(
        row,
        cancel_requested_at=before.cancel_requested_at,
        cancel_reason=before.cancel_reason,
        close_as="CANCELLED" if is_cancelled else row.close_as,
        close_at=before.close_at if is_cancelled else row.close_at,
    )
    view.runs.put(row.run_id, carried)
