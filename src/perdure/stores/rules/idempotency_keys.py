"""Idempotency keys: how they are taken, and what is kept under them, whatever the database.

In:   operations on keys, each with the number of its group.
Out:  questions to the database; KeptKey for a group whose key another one has.
"""

from perdure.stores.answers import Answer, Answers, Applied, KeptKey, answer_group
from perdure.stores.operations import ForgetKeys, TakeKey
from perdure.stores.records import KeyRow
from perdure.stores.rules.questions import Ask, ManyRows, Query, Steps


def take_keys(takes: list[tuple[int, TakeKey]], answers: Answers) -> Steps[None]:
    """Take keys; KeptKey where one is taken, also by another group of the batch."""
    first: dict[tuple[str, ...], TakeKey] = {}
    for index, take in takes:
        holder = first.setdefault(take.identity, take)
        if holder is not take:
            answer_group(answers, index, KeptKey(holder.row))
    # In one order, so that nobody waits for each other.
    rows = [first[identity] for identity in sorted(first)]
    taken = {holder for (holder,) in (yield ManyRows("take_keys", rows)).rows}
    for index, take in takes:
        if first[take.identity] is take and take.holder not in taken:
            kept = yield from kept_key(*take.identity)
            answer_group(answers, index, KeptKey(take.row if kept is None else kept))


def kept_key(namespace: str, command: str, key: str) -> Steps[KeyRow | None]:
    """What is known of a command under a key."""
    found = yield Query("kept_key", {"namespace": namespace, "command": command, "key": key})
    return KeyRow(*found.first) if found.rows else None


def forget_keys(forget: ForgetKeys) -> Steps[Answer]:
    """Delete some of those that are not kept any more; answered with whether there may be more."""
    return Applied((yield Query("forget_keys", forget._asdict())).count == forget.limit)


class KeyReads:
    """What can be read of idempotency keys."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask

    async def kept(self, namespace: str, command: str, key: str) -> KeyRow | None:
        """What is known of a command under a key."""
        return await self._ask(lambda: kept_key(namespace, command, key))

    async def oldest(self) -> int | None:
        """Until when the first that will be forgotten is kept."""

        def ask() -> Steps[int | None]:
            found: int | None = (yield Query("oldest_key", {})).first[0]
            return found

        return await self._ask(ask)
