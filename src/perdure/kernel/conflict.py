"""Same id again: what a start does when its id is taken."""

from enum import StrEnum
from typing import TypeAlias, assert_never

import msgspec


class OnConflict(StrEnum):
    """What a start does when its id is taken."""

    RETURN = "return"
    REJECT = "reject"
    REPLACE = "replace"
    TERMINATE = "terminate"


class GiveIt(msgspec.Struct, frozen=True):
    """The run that has the id is the answer."""


class Refuse(msgspec.Struct, frozen=True):
    """The id stays with the run that has it; `allowed` are the policies under which it would not."""

    why: str
    allowed: tuple[OnConflict, ...] = ()


class TakeOver(msgspec.Struct, frozen=True):
    """A new run gets the id; one that is still open is terminated first."""

    terminates: bool


Resolution: TypeAlias = GiveIt | Refuse | TakeOver


def helpful(*, difference: str | None, is_closed: bool) -> tuple[OnConflict, ...]:
    """The policies under which such a start is not refused."""
    found = {policy: resolve(policy, difference=difference, is_closed=is_closed) for policy in OnConflict}
    return tuple(policy for policy, resolution in found.items() if not isinstance(resolution, Refuse))


def resolve(policy: OnConflict, *, difference: str | None, is_closed: bool) -> Resolution:
    """What becomes of a start whose id is taken; `difference` says what the run that has it differs in."""
    match policy:
        case OnConflict.RETURN:
            return GiveIt() if difference is None else Refuse(difference)
        case OnConflict.REJECT:
            return Refuse("on_conflict is 'reject'")
        case OnConflict.REPLACE:
            return TakeOver(terminates=False) if is_closed else Refuse("on_conflict is 'replace', but it is still open")
        case OnConflict.TERMINATE:
            return TakeOver(terminates=not is_closed)
        case _:
            assert_never(policy)
