"""What commands print: tables for people, JSON for programs.

In:   values of the engine.
Out:  text on standard output; progress and trouble on standard error.
"""

import json
import logging
import sys
from collections.abc import Iterator
from typing import Literal

from rich.console import Console, ConsoleOptions, RenderableType
from rich.highlighter import JSONHighlighter
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from perdure.cli.output.console import forbids_colours, takes_unicode
from perdure.views.words import json_text, visible

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

# Where it goes


class Screen(Console):
    """A console on which no text can do more than be read, wherever it comes from."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
        for segment in super().render(renderable, options):
            text, style, control = segment
            yield segment if control else Segment(visible(text), style)


def screen() -> Console:
    """Standard output, for people."""
    return _console(is_for_errors=False)


def errors() -> Console:
    """Standard error: progress and trouble."""
    return _console(is_for_errors=True)


def _console(*, is_for_errors: bool) -> Console:
    # By itself Rich would leave bold and dim letters where colours are not wanted.
    system: Literal["auto"] | None = None if forbids_colours() else "auto"
    return Screen(stderr=is_for_errors, color_system=system, highlight=False, markup=False, emoji=False)


class LogFormatter(logging.Formatter):
    """Formats log lines for a terminal; their texts may come from anywhere."""

    def format(self, record: logging.LogRecord) -> str:
        return visible(super().format(record))


def print_warning(console: Console, text: str) -> None:
    """A line about something that went well, but perhaps not as meant, beside whatever the console shows."""
    console.print(Text.assemble(("warning:", "bold yellow"), f" {visible(text)}"), soft_wrap=True)


def is_for_people(*, as_json: bool) -> bool:
    """Whether a person reads the output on a terminal."""
    return not as_json and sys.stdout.isatty()


# JSON


def print_json(value: object) -> None:
    """One JSON document."""
    _write(json_text(value, indent=2))


def print_json_line(value: object) -> None:
    """One JSON document on a line of its own, at once."""
    _write(json_text(value))


def print_coloured_json(value: object) -> None:
    """One JSON document, for people."""
    screen().print(JSONHighlighter()(json_text(value, indent=2)), soft_wrap=True)


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


def status_text(status: str, held: str | None = None) -> Text:
    """A status in its colour; a held run says so."""
    if held is not None:
        return Text(f"HELD ({held})", style="bold red")
    return Text(status, style=STYLES.get(status, ""))
