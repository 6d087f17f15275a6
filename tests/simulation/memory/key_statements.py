"""Statements on idempotency keys."""

from collections.abc import Sequence
from typing import Any

from perdure.stores.operations import NoteReply, TakeKey
from perdure.stores.records import KeyRow
from perdure.stores.rules.questions import Found
from tests.simulation.memory.statements import changed, never_waiting, rows_of, statement
from tests.simulation.memory.view import Steps, View


@statement
def take_keys(view: View, rows: Sequence[TakeKey]) -> Steps[Found]:
    taken = []
    for take in rows:
        yield from view.keys.wait(take.identity)
        kept = view.keys.get(take.identity)
        if kept is None or is_free(take, *kept):
            view.keys.put(take.identity, (take.row, take.stale_at))
            taken.append((take.holder,))
    return rows_of(taken)


def is_free(take: TakeKey, kept: KeyRow, stale_at: int) -> bool:
    """Whether a key that is there can be taken."""
    is_stale = kept.answer is None and kept.digest == take.digest and stale_at <= take.at
    return is_stale or kept.keep_until <= take.at


@never_waiting
def kept_key(view: View, *, namespace: str, command: str, key: str) -> Found:
    kept = view.keys.get((namespace, command, key))
    return rows_of([] if kept is None else [kept[0]])


@statement
def finish_key(
    view: View, *, namespace: str, command: str, key: str, holder: str, answer: str, keep_until: int
) -> Steps[Found]:
    return (yield from _change(view, (namespace, command, key), holder, answer=answer, keep_until=keep_until))


@statement
def note_replies(view: View, rows: Sequence[NoteReply]) -> Steps[Found]:
    noted = 0
    for namespace, command, key, holder, reply in rows:
        noted += (yield from _change(view, (namespace, command, key), holder, reply=reply)).count
    return changed(noted)


def _change(view: View, identity: tuple[str, str, str], holder: str, **changes: Any) -> Steps[Found]:
    yield from view.keys.wait(identity)
    kept = view.keys.get(identity)
    if kept is None or kept[0].holder != holder:
        return changed(0)
    view.keys.put(identity, (kept[0]._replace(**changes), kept[1]))
    return changed(1)


@statement
def release_key(view: View, *, namespace: str, command: str, key: str, holder: str) -> Steps[Found]:
    identity = (namespace, command, key)
    yield from view.keys.wait(identity)
    kept = view.keys.get(identity)
    if kept is None or kept[0].holder != holder:
        return changed(0)
    view.keys.put(identity, None)
    return changed(1)


@statement
def forget_keys(view: View, *, now: int, limit: int) -> Steps[Found]:
    old = [
        (kept[0].keep_until, identity)
        for identity, kept in {**view.tables.keys.rows, **view.keys.own}.items()
        if kept is not None and kept[0].keep_until <= now
    ]
    forgotten = 0
    for _, identity in sorted(old)[:limit]:
        yield from view.keys.wait(identity)
        kept = view.keys.get(identity)
        if kept is not None and kept[0].keep_until <= now:
            view.keys.put(identity, None)
            forgotten += 1
    return changed(forgotten)


@statement
def delete_keys(view: View, *, namespace: str) -> Steps[Found]:
    seen = {**view.tables.keys.rows, **view.keys.own}
    own = sorted(identity for identity, kept in seen.items() if kept is not None and identity[0] == namespace)
    for identity in own:
        yield from view.keys.wait(identity)
        view.keys.put(identity, None)
    return changed(len(own))
