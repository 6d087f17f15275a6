"""Answers to groups of operations, and outcomes of whole batches.

A refusal is an answer like any other; an outcome that cannot be known is a value too,
and whoever gets it must ask the database before going on.
"""

from collections.abc import Mapping
from typing import TypeAlias

import msgspec

from perdure.errors import StoreUnavailable
from perdure.stores.records import KeyRow, RunRow

# Answers to groups.


class Applied(msgspec.Struct, frozen=True):
    """The group is on disk; `value` is what its operation was asked to tell."""

    value: object = None


class Posted(msgspec.Struct, frozen=True):
    """A message's number, and how many messages its run has had with it; None when it was there before."""

    number: int
    count: int | None


class StoppedChild(msgspec.Struct, frozen=True):
    """A child that was asked to stop, by the message of this number and kind."""

    run_id: str
    number: int
    kind: str


class Blamed(msgspec.Struct, frozen=True):
    """A run that was a lost worker's only suspect, how many died with it by now, and whether it is held for that."""

    workflow_id: str
    deaths: int
    is_held: bool = False


class Freed(msgspec.Struct, frozen=True):
    """How many runs of a gone worker were let go, and the one that its loss is held against."""

    count: int
    blamed: "Blamed | Paused | None" = None


class Paused(msgspec.Struct, frozen=True):
    """A run whose worker died with it alone, so many times by now; it is tried again at this time."""

    workflow_id: str
    times: int
    until: int


class Remaining(msgspec.Struct, frozen=True):
    """A namespace is not empty: how many runs, counted up to a number, workers, schedules and sinks are left."""

    runs: int
    workers: int
    schedules: int = 0
    sinks: int = 0


class Taken(msgspec.Struct, frozen=True):
    """The workflow_id belongs to this run."""

    run: RunRow


class KeptKey(msgspec.Struct, frozen=True):
    """The idempotency key is taken: what is kept under it."""

    row: KeyRow


class Missing(msgspec.Struct, frozen=True):
    """There is no such run."""


class Closed(msgspec.Struct, frozen=True):
    """The run has ended."""

    status: str


class Differs(msgspec.Struct, frozen=True):
    """What can be written only once is there already, and is something else."""


class Full(msgspec.Struct, frozen=True):
    """The run has not read so many messages; it takes no more of this kind."""

    most: int


class Moved(msgspec.Struct, frozen=True):
    """The row is not any more what the operation expected to find."""


class Stale(msgspec.Struct, frozen=True):
    """The worker of the group does not hold its epoch any more; its neighbours were applied."""


class Broken(msgspec.Struct, frozen=True):
    """The database refused the group for a reason of its own; its neighbours were applied."""

    trouble: str


class Busy(msgspec.Struct, frozen=True):
    """Somebody outside holds what the group would change; nothing of it was written, its neighbours were applied."""

    trouble: str


Answer: TypeAlias = (
    Applied | Taken | KeptKey | Remaining | Missing | Closed | Differs | Full | Moved | Stale | Broken | Busy
)
APPLIED = Applied()


# Outcomes of batches.


class Committed(msgspec.Struct, frozen=True):
    """The batch is on disk. `answers` holds, by group, what is more or less than plainly applied."""

    answers: Mapping[int, Answer]


class Fenced(msgspec.Struct, frozen=True):
    """The worker's epoch moved: nothing of the batch was written, and nothing of it ever will be."""


class Failed(msgspec.Struct, frozen=True):
    """The batch was not written; the database may take it later."""

    error: StoreUnavailable


class Unknown(msgspec.Struct, frozen=True):
    """The batch may or may not be on disk."""

    error: StoreUnavailable


Outcome: TypeAlias = Committed | Fenced | Failed | Unknown


class Undone(msgspec.Struct, frozen=True):
    """The code of a caller that ran inside a transaction failed, or is not wanted any more; nothing of it is left.

    `error` is why, when those who gave the code do not know already.
    """

    error: BaseException | None = None


# Answers of a batch, by the number of their group.

Answers: TypeAlias = dict[int, Answer]


def answer_group(answers: Answers, index: int, answer: Answer) -> None:
    """A refusal is the answer of its group, whatever its other operations say."""
    if isinstance(answers.get(index, APPLIED), Applied):
        answers[index] = answer


def is_refused(answers: Answers, index: int) -> bool:
    """Whether an operation of this group was refused."""
    return index in answers and not isinstance(answers[index], Applied)
