"""Apart: a batch that cannot be written as one, written in pieces.

In:   groups, and a way to write some of them.
Out:  their answers, with Busy for what could not be written although others could.

Whatever keeps one group from being written - a row that somebody outside holds and that the group does not name, a
trigger of somebody's that fails - must not keep its neighbours (law 5). Nobody knows beforehand which one it is.
"""

from collections.abc import Awaitable, Callable, Iterable, Sequence

import asyncpg

from perdure.errors import StoreUnavailable
from perdure.stores.answers import Answer, Busy, Committed, Failed, Outcome, Unknown
from perdure.stores.operations import Batch, Operation
from perdure.stores.postgres.errors import unavailable
from perdure.stores.rules.batch import touched_runs

# What a server takes in one transaction in good time, over a slow network as well; one group may be larger.
LARGEST_PIECE = 2_000_000
# A value that is shorter does not count.
SHORT_VALUE = 1024
# So many tries that fail find two or three groups among two thousand; with more to find, the rest waits for the next.
MOST_TRIES = 24
# One group's own trouble, it may be: a lock, a circle of them, too long a statement, a trigger, a spoilt page.
_OF_ONE = ("55P03", "40P01", "40001", "57014", "P0001", "XX001", "XX002")


def may_be_of_one(error: BaseException) -> bool:
    """Whether one group of a batch may be to blame, and not the database."""
    return isinstance(error, asyncpg.PostgresError) and error.sqlstate in _OF_ONE


def pieces_of(groups: Sequence[Sequence[Operation]]) -> list[range]:
    """The groups in their order, in pieces that are not too large."""
    pieces, first, size = [], 0, 0
    for place, group in enumerate(groups):
        more = sum(_size(value) for operation in group for value in operation)
        if size + more > LARGEST_PIECE and place > first:
            pieces.append(range(first, place))
            first, size = place, 0
        size += more
    pieces.append(range(first, len(groups)))
    return pieces


def _size(value: object) -> int:
    """About how many bytes a value takes, as far as that matters."""
    if isinstance(value, str):
        return len(value) if len(value) > SHORT_VALUE else 0
    return sum(map(_size, value)) if isinstance(value, tuple) else 0


def halves_of(groups: Sequence[object]) -> list[range]:
    """The groups in two pieces; one that is alone stays so."""
    middle = len(groups) // 2
    return [piece for piece in (range(middle), range(middle, len(groups))) if piece]


class Apart:
    """One batch, written in pieces."""

    def __init__(
        self,
        batch: Batch,
        shown: str,
        write: Callable[[Batch], Awaitable[Outcome]],
        blame: Callable[[Sequence[Operation], BaseException], Busy],
    ) -> None:
        self._batch = batch
        self._shown = shown
        self._write = write
        self._blame = blame
        self._told: dict[int, Answer] = {}
        self._has_written = False
        # The runs of what was not written: whatever comes after it for them waits as well.
        self._behind: dict[str, Busy] = {}
        self._tries = MOST_TRIES

    async def written(self, pieces: Iterable[range]) -> Outcome:
        """Write all pieces, the halves of those that fail, and so on, until what is to blame stands alone."""
        waiting = [[*piece] for piece in pieces][::-1]
        failed: Outcome | None = None
        while waiting:
            places = self._free_of(waiting.pop())
            if not places:
                continue
            try:
                outcome = await self._write(self._batch._replace(groups=[self._batch.groups[at] for at in places]))
            except asyncpg.PostgresError as error:
                if not may_be_of_one(error):
                    raise
                failed = failed or Failed(unavailable(self._shown, error))
                waiting += self._left_of(places, error)
                continue
            if isinstance(outcome, Committed):
                self._has_written = True
                self._told |= {places[index]: answer for index, answer in outcome.answers.items()}
            elif not self._has_written:
                return outcome
            elif isinstance(outcome, Failed):
                failed = outcome
                self._put_off(places, Busy(str(outcome.error)))
            else:
                return Unknown(StoreUnavailable(self._shown, "whether all of the change is on disk is not known"))
        # Where nothing at all could be written, and not each of a few for itself, it is the database.
        return failed if failed is not None and not self._has_written and self._tries <= 0 else Committed(self._told)

    def _left_of(self, places: list[int], error: BaseException) -> list[list[int]]:
        """What is to be tried next of groups that could not be written together, the first of them last."""
        self._tries -= 1
        if len(places) == 1:
            self._put_off(places, self._blame(self._batch.groups[places[0]], error))
            return []
        if self._tries <= 0:
            self._put_off(places, Busy(str(unavailable(self._shown, error))))
            return []
        return [[places[at] for at in half] for half in halves_of(places)][::-1]

    def _free_of(self, places: Sequence[int]) -> list[int]:
        """Those of these groups that come behind nothing that was put off."""
        free = []
        for place in places:
            found = next((busy for run, busy in self._behind.items() if run in self._runs(place)), None)
            if found is None:
                free.append(place)
            else:
                self._put_off([place], found)
        return free

    def _put_off(self, places: Sequence[int], busy: Busy) -> None:
        for place in places:
            self._told[place] = busy
            self._behind |= dict.fromkeys(self._runs(place), busy)

    def _runs(self, place: int) -> set[str]:
        return touched_runs(self._batch.groups[place])
