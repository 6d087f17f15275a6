"""What commands print: tables for people, JSON for programs.

In:   values of the engine.
Out:  text on standard output; progress and trouble on standard error.
"""

import json
import logging
import re
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import msgspec
from rich.console import Console, ConsoleOptions, RenderableType
from rich.highlighter import JSONHighlighter
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from perdure.cli.output.console import takes_unicode

LONGEST_SHOWN = 100

STYLES = {
    "PENDING": "cyan",
    "RUNNING": "blue",
    "SUSPENDED": "yellow",
    "COMPLETED": "green",
    "FAILED": "bold red",
    "CANCELLED": "magenta",
    "TERMINATED": "magenta",
    "TIMED_OUT": "bold red",
    "CONTINUED": "dim",
}

_UNITS = ((86_400, "d"), (3600, "h"), (60, "min"))
_SIZES = ((2**30, "GB"), (2**20, "MB"), (2**10, "kB"))
# What could move a terminal's cursor or change its colours, turn the direction of what stands beside it, or is not seen
# at all; but for the joiners that some scripts are written with.
_CONTROLS = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\U000e0000-\U000e007f]"
)


# Where it goes


class Screen(Console):
    """A console on which no text can do more than be read, wherever it comes from."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
        for segment in super().render(renderable, options):
            text, style, control = segment
            yield segment if control else Segment(visible(text), style)


def screen() -> Console:
    """Standard output, for people."""
    return Screen(highlight=False, markup=False, emoji=False)


def errors() -> Console:
    """Standard error: progress and trouble."""
    return Screen(stderr=True, highlight=False, markup=False, emoji=False)


class LogFormatter(logging.Formatter):
    """Log lines on a terminal: what they tell may be of anybody."""

    def format(self, record: logging.LogRecord) -> str:
        return visible(super().format(record))


def print_warning(console: Console, text: str) -> None:
    """A line about something that went well, but perhaps not as meant, beside whatever the console shows."""
    console.print(Text.assemble(("warning:", "bold yellow"), f" {visible(text)}"), soft_wrap=True)


def is_for_people(*, as_json: bool) -> bool:
    """Whether somebody reads the output on a terminal."""
    return not as_json and sys.stdout.isatty()


# JSON


def print_json(value: object) -> None:
    """One JSON document."""
    _write(_json(value, indent=2))


def print_json_line(value: object) -> None:
    """One JSON document on a line of its own, at once."""
    _write(_json(value))


def print_coloured_json(value: object) -> None:
    """One JSON document, for people."""
    screen().print(JSONHighlighter()(_json(value, indent=2)), soft_wrap=True)


def _json(value: object, indent: int | None = None) -> str:
    """A value as JSON; what a terminal would not show as it is stands escaped, which says the same."""
    document = msgspec.json.encode(value)
    if indent is not None:
        document = msgspec.json.format(document, indent=indent)
    return _CONTROLS.sub(lambda found: json.dumps(found[0])[1:-1], document.decode())


def _write(text: str) -> None:
    if not takes_unicode(sys.stdout):
        # Escaped, it is the same document in every encoding.
        indent = 2 if "\n" in text else None
        text = json.dumps(json.loads(text), indent=indent, separators=(",", ": " if indent else ":"))
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


# Tables


def plain_table(*headings: str) -> Table:
    """A table without lines."""
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", pad_edge=False)
    for heading in headings:
        table.add_column(heading, overflow="fold")
    return table


def grid(columns: int = 2) -> Table:
    """Labels, and what belongs to them; only the last column wraps."""
    table = Table.grid(padding=(0, 2))
    for _ in range(columns - 1):
        table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    return table


def print_lines(console: Console, table: RenderableType) -> None:
    """Print a table without the blanks that would fill each line up to its width."""
    for segments in console.render_lines(table, pad=False):
        line = Text.assemble(*((segment.text, segment.style or "") for segment in segments))
        line.rstrip()
        console.print(line, soft_wrap=True)


# Words


def visible(text: str) -> str:
    """A text of somebody else, harmless on a terminal."""
    return _CONTROLS.sub("?", text)


def counted(count: int, noun: str, nouns: str | None = None) -> str:
    """So many of something: `1 event`, `2 events`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {nouns or noun + 's'}"


def status_text(status: str, held: str | None = None) -> Text:
    """A status in its colour; a held run says so."""
    if held is not None:
        return Text(f"HELD ({held})", style="bold red")
    return Text(status, style=STYLES.get(status, ""))


def compact(value: object, limit: int = LONGEST_SHOWN) -> str:
    """A value as JSON on one line, cut where it gets long."""
    text = _json(value)
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
    """A moment on the reader's own clock, and how far off it is."""
    return f"{at.astimezone():%Y-%m-%d %H:%M:%S} ({distance(at)})"
