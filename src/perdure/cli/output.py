"""What commands print: tables for people, JSON for programs.

In:   values of the engine.
Out:  text on standard output; progress and trouble on standard error.
"""

import sys
from datetime import UTC, datetime, timedelta

import msgspec
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

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


def screen() -> Console:
    """Standard output, for people."""
    return Console(highlight=False)


def errors() -> Console:
    """Standard error: progress and trouble."""
    return Console(stderr=True, highlight=False)


def is_for_people(*, as_json: bool) -> bool:
    """Whether somebody reads the output on a terminal."""
    return not as_json and sys.stdout.isatty()


def print_json(value: object) -> None:
    """One JSON document."""
    sys.stdout.write(msgspec.json.format(msgspec.json.encode(value), indent=2).decode() + "\n")
    sys.stdout.flush()


def plain_table(*headings: str) -> Table:
    """A table without lines."""
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", pad_edge=False)
    for heading in headings:
        table.add_column(heading, overflow="fold")
    return table


def print_lines(console: Console, table: RenderableType) -> None:
    """Print a table without the blanks that would fill each line up to its width."""
    for segments in console.render_lines(table, pad=False):
        line = Text.assemble(*((segment.text, segment.style or "") for segment in segments))
        line.rstrip()
        console.print(line, soft_wrap=True)


def counted(count: int, noun: str) -> str:
    """So many of something: `1 event`, `2 events`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def status_text(status: str, held: str | None = None) -> Text:
    """A status in its colour; a held run says so."""
    if held is not None:
        return Text(f"HELD ({held})", style="bold red")
    return Text(status, style=STYLES.get(status, ""))


def compact(value: object, limit: int = LONGEST_SHOWN) -> str:
    """A value as JSON on one line, cut where it gets long."""
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= limit else f"{text[:limit]}… ({len(text):,} characters)"


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
