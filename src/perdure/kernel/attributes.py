"""Attributes as values: what a change of them is, and what it makes of others.

In:   attributes as JSON.
Out:  the names that changed, None for one that was taken away; the same attributes with such a change.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

_decode = msgspec.json.Decoder(dict[str, Any]).decode


def changes(before: str | None, after: str | None) -> dict[str, object]:
    """What leads from attributes to others."""
    old, new = _decode(before or "{}"), _decode(after or "{}")
    gone: dict[str, object] = dict.fromkeys(name for name in old if name not in new)
    return gone | {name: value for name, value in new.items() if not _is_same(old, name, value)}


def _is_same(old: Mapping[str, object], name: str, value: object) -> bool:
    """Whether it was there as it is; 1, 1.0 and true are not the same."""
    return name in old and msgspec.json.encode(old[name]) == msgspec.json.encode(value)


def merged(attributes: str | None, patch: Mapping[str, object]) -> str:
    """Attributes with a change made to them."""
    found = _decode(attributes or "{}") | dict(patch)
    return msgspec.json.encode({name: value for name, value in found.items() if value is not None}).decode()


class AttributeChange(NamedTuple):
    """What the code of a run has changed: the attributes that come of it, and those they were made from.

    `own` is what the code itself has made of them, `patch` its change alone, for attributes that are others by then.
    """

    attributes: str
    before: str | None
    own: str
    patch: str


def change_of(said: str | None, own: str | None, in_row: str | None) -> AttributeChange | None:
    """The change from what the code has said before; `in_row` are the attributes when some are from outside."""
    if own == said:
        return None
    patch, own = changes(said, own), own or "{}"
    text = msgspec.json.encode(patch).decode()
    if in_row is None:
        return AttributeChange(own, said, own, text)
    return AttributeChange(merged(in_row, patch), in_row, own, text)
