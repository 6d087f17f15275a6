"""Cursors: where a subscriber stands, as text that another process can go on from."""

from typing import NamedTuple

from perdure.errors import BadOption
from perdure.kernel.position import Position

_FOREIGN = "the cursor {!r} is none of subscribe(); give that of the last change you had, or none"


class Cursor(NamedTuple):
    """Everything up to a position was told, as of a time.

    `listed_to` is the last run of the first list that was told, empty before the first one, None when all were.
    """

    position: Position
    at: int
    listed_to: str | None = None

    @classmethod
    def parse(cls, text: object) -> "Cursor":
        """The cursor that a text says; BadOption when it says none."""
        if not isinstance(text, str):
            raise BadOption(_FOREIGN.format(text))
        told, is_listing, listed_to = text.partition("~")
        position, _, at = told.partition("@")
        try:
            return cls(Position.parse(position), int(at), listed_to if is_listing else None)
        except ValueError:
            raise BadOption(_FOREIGN.format(text)) from None

    def __str__(self) -> str:
        told = f"{self.position}@{self.at}"
        return told if self.listed_to is None else f"{told}~{self.listed_to}"
