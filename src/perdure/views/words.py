"""Values, sizes and times in words, for people: the same on a terminal and on a page.

In:   values of the engine, counts, moments, texts of others.
Out:  short texts without markup; nothing in them can move a cursor or hide what stands beside them.
"""

import json
import re
from datetime import UTC, datetime, timedelta

import msgspec

LONGEST_SHOWN = 100

_UNITS = ((86_400, "d"), (3600, "h"), (60, "min"))
_SIZES = ((2**30, "GB"), (2**20, "MB"), (2**10, "kB"))
# What could move a terminal's cursor or change its colours, turn the direction of what stands beside it, or is not seen
# at all; but for the joiners that some scripts are written with.
_CONTROLS = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\U000e0000-\U000e007f]"
)


def visible(text: str) -> str:
    """A text from anywhere, harmless on a terminal."""
    return _CONTROLS.sub("?", text)


def counted(count: int, noun: str, nouns: str | None = None) -> str:
    """So many of something: `1 event`, `2 events`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {nouns or noun + 's'}"


def json_text(value: object, indent: int | None = None) -> str:
    """A value as JSON; what a terminal would not show as it is stands escaped, which says the same."""
    document = msgspec.json.encode(value)
    if indent is not None:
        document = msgspec.json.format(document, indent=indent)
    return _CONTROLS.sub(lambda found: json.dumps(found[0])[1:-1], document.decode())


def compact(value: object, limit: int = LONGEST_SHOWN) -> str:
    """A value as JSON on one line, cut where it gets long."""
    text = json_text(value)
    return text if len(text) <= limit else f"{text[:limit]}… ({len(text):,} characters)"


def size_text(size: int) -> str:
    """So many bytes, in the largest unit that fits."""
    for unit, name in _SIZES:
        if size >= unit:
            return f"{size / unit:.0f} {name}" if size >= 10 * unit else f"{size / unit:.1f} {name}"
    return counted(size, "byte")


def span(duration: timedelta) -> str:
    """A duration in the largest unit that fits."""
    seconds = duration.total_seconds()
    for size, unit in _UNITS:
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.1f} s" if seconds >= 1 else f"{max(0, seconds) * 1000:.0f} ms"


def distance(at: datetime) -> str:
    """How far off a moment is."""
    passed = datetime.now(UTC) - at
    return f"{span(passed)} ago" if passed >= timedelta(0) else f"in {span(-passed)}"


def moment(at: datetime) -> str:
    """A moment on the reader's own clock, with its zone, and how far off it is."""
    return f"{at.astimezone():%Y-%m-%d %H:%M:%S %Z} ({distance(at)})"
