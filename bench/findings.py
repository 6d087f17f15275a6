"""Findings: figures of one long measurement, each beside its bar; a table for people, a JSON file for programs."""

import platform
from collections.abc import Sequence
from pathlib import Path

import msgspec
from rich.console import Console
from rich.table import Table

from bench.budget import spin_ms
from bench.server import version_of

RESULTS = Path("bench/results")
WIDTH = 120


class Finding(msgspec.Struct, frozen=True):
    """One figure; without a limit it is only shown."""

    title: str
    value: float
    unit: str = ""
    limit: float | None = None
    is_minimum: bool = False

    @property
    def passes(self) -> bool:
        if self.limit is None:
            return True
        return self.value >= self.limit if self.is_minimum else self.value <= self.limit

    @property
    def bar(self) -> str:
        return "" if self.limit is None else f"{'≥' if self.is_minimum else '≤'} {self.limit:g}{self.unit}"


class Findings(msgspec.Struct, frozen=True):
    """What was measured, and on what."""

    name: str
    python: str
    store: str
    spin_ms: float
    command: str
    figures: list[Finding]


def conclude(
    name: str, command: str, figures: Sequence[Finding], path: Path | None = None, server: str | None = None
) -> int:
    """Show and write the figures; the exit status says whether every bar was reached."""
    found = Findings(name, platform.python_version(), version_of(server), spin_ms(), command, list(figures))
    path = path or RESULTS / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(msgspec.json.format(msgspec.json.encode(found), indent=2) + b"\n")
    console = Console()
    if not console.is_terminal:
        console.width = WIDTH
    console.print(_table(found))
    console.print(f"written to {path}", style="dim")
    return 0 if all(figure.passes for figure in figures) else 1


def _table(found: Findings) -> Table:
    caption = f"{found.command}; Python {found.python}, {found.store}, spin {found.spin_ms:.1f} ms"
    table = Table(title=found.name, caption=caption)
    table.add_column("")
    table.add_column("ours", justify="right")
    table.add_column("bar")
    table.add_column("result")
    for figure in found.figures:
        result = "" if figure.limit is None else "[green]pass[/]" if figure.passes else "[red]miss[/]"
        table.add_row(figure.title, _number(figure), figure.bar, result)
    return table


def _number(figure: Finding) -> str:
    value = figure.value
    return (f"{value:,.0f}" if abs(value) >= 1000 or value == int(value) else f"{value:.3g}") + figure.unit
