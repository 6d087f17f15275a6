"""Writing under a key: the group that has the effect of a command takes its key as well.

In:   groups of operations, as the parts of an engine give them to their committer.
Out:  the same groups, the one that counts with the key and the answer in it; KeyTaken when another one has the key.
"""

import copy
from collections.abc import Sequence
from typing import Any, TypeVar

from perdure.engine.committer import CallbackGroup, Committer, Group, Settlement
from perdure.engine.keys.commands import answer_in, is_insert
from perdure.stores.answers import Applied, KeptKey
from perdure.stores.operations import Operation, TakeKey

T = TypeVar("T")
# What the parts of an engine have that writes for them.
WRITERS = ("_stopping", "_rows")


class KeyTaken(Exception):  # noqa: N818 - no trouble, it is told what was answered
    """Nothing of a group was written, for its key is taken; never seen by callers."""

    def __init__(self, kept: KeptKey) -> None:
        super().__init__(kept)
        self.row = kept.row


class KeyedCommitter:
    """A committer for the groups of one command."""

    def __init__(self, committer: Committer, key: TakeKey, *, only_inserts: bool) -> None:
        self._committer = committer
        self._key = key
        self._only_inserts = only_inserts
        # Whether a group with the key is on disk: what comes after belongs to it.
        self.is_taken = False
        self.room = committer.room

    @property
    def is_full(self) -> bool:
        return self._committer.is_full

    def submit(self, group: Group) -> None:
        """Put a group into the next batch."""
        if self._counts(group.operations):
            group.operations = self._with_key(group.operations)
        self._committer.submit(group)

    async def apply(self, *operations: Operation, kind: type[CallbackGroup] = CallbackGroup) -> Settlement:
        """Write a group and wait for its answer."""
        if not self._counts(operations):
            return await self._committer.apply(*operations, kind=kind)
        answer = await self._committer.apply(*self._with_key(operations), kind=kind)
        if isinstance(answer, KeptKey):
            raise KeyTaken(answer)
        self.is_taken = isinstance(answer, Applied)
        return answer

    def _counts(self, operations: Sequence[Operation]) -> bool:
        return not self.is_taken and (is_insert(operations) or not self._only_inserts)

    def _with_key(self, operations: Sequence[Operation]) -> tuple[Operation, ...]:
        return (self._key._replace(answer=answer_in(operations).decode()), *operations)


def over(part: T, committer: KeyedCommitter) -> T:
    """The same part, which writes through another committer."""
    made: Any = copy.copy(part)
    made._committer = committer
    for name in WRITERS:
        if hasattr(made, name):
            setattr(made, name, over(getattr(made, name), committer))
    return made  # type: ignore[no-any-return]  # as it was given
