"""A held run on a terminal: that it is held, why, and what to do."""

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from perdure.cli.output.tables import grid, print_lines
from perdure.views.held import meaning_of, sides_of
from perdure.views.run import RunInfo
from perdure.views.words import visible


def print_hold(console: Console, info: RunInfo) -> None:
    """Say that the run is held, why, and what to do."""
    console.print(Text.assemble(("held: ", "bold red"), (meaning_of(info), "bold")), soft_wrap=True)
    table = grid()
    for label, text in sides_of(info):
        table.add_row(label, Text(visible(text)))
    print_lines(console, Padding(table, (0, 0, 0, 2)))
    console.print(Text("  Nothing is lost: the run stays as it is until somebody acts.", style="dim"), soft_wrap=True)
