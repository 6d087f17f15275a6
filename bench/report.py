"""The report: two tables for people, one JSON file for programs."""

import platform
import sqlite3
from pathlib import Path

import msgspec
from rich.console import Console
from rich.table import Table

from bench.bars import Line, Pair
from bench.budget import Budget
from bench.peers import NUMBERS, PEERS, SOURCE


class Report(msgspec.Struct, frozen=True):
    """Everything that was measured, and on what."""

    python: str
    sqlite: str
    spin_ms: float
    is_quick: bool
    pairs: dict[str, list[Pair]]
    budget: Budget | None
    lines: list[Line]


def versions() -> tuple[str, str]:
    return platform.python_version(), sqlite3.sqlite_version


def write(report: Report, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(msgspec.json.format(msgspec.json.encode(report), indent=2) + b"\n")


def show(report: Report, console: Console) -> None:
    console.print(_ours(report))
    if report.pairs:
        console.print(_peers(report))


def _ours(report: Report) -> Table:
    count = max((len(pairs) for pairs in report.pairs.values()), default=0)
    table = Table(
        title=f"Perdure beside the floor: {count} pairs, medians"
        + (", quick: sizes too small to mean much" if report.is_quick else ""),
        caption=f"Python {report.python}, SQLite {report.sqlite}, spin {report.spin_ms:.1f} ms; "
        "workers on, default settings, fsync on, results checked",
    )
    for name in ("scenario", "", "ours", "spread", "floor, commit", "ratio", "bar", "result"):
        table.add_column(name, justify="right" if name in {"ours", "floor, commit", "ratio"} else "left", no_wrap=True)
    for line in report.lines:
        table.add_row(
            line.scenario,
            line.title,
            _number(line.ours, line.unit),
            "" if line.lowest == line.highest else f"{_number(line.lowest)} to {_number(line.highest)}",
            "" if line.beside is None else _number(line.beside, line.beside_unit),
            "" if line.ratio is None else f"{line.ratio:.2f}",
            line.bar if line.beside is None else f"{line.bar} = {_number(line.limit, line.unit)}",
            "[green]pass[/]" if line.passes else "[red]miss[/]",
        )
    return table


def _number(value: float, unit: str = "") -> str:
    shown = f"{value:,.0f}" if value >= 1000 or value == 0 else f"{value:.3g}"
    return shown + unit


def _peers(report: Report) -> Table:
    table = Table(title="Beside others, for scale", caption=SOURCE)
    table.add_column("scenario")
    table.add_column("Perdure, now", justify="right", style="bold")
    for peer in PEERS:
        table.add_column(f"{peer}*", justify="right")
    for scenario in report.pairs:
        table.add_row(_TITLES[scenario], _compared(scenario, report), *(NUMBERS[scenario][peer] for peer in PEERS))
    table.caption = f"* {SOURCE}"
    return table


_TITLES = {
    "S1": "S1 workflows of 5 steps",
    "S2": "S2 start to result, p50 / p99",
    "S3": "S3 per step of a long run",
    "S7": "S7 restart to all done (2 s of it a step)",
}


def _compared(scenario: str, report: Report) -> str:
    """Our number in the form the peers' are given."""
    pairs = report.pairs[scenario]
    match scenario:
        case "S1":
            return _number(_middle(pairs, "workflows_per_s"), "/s")
        case "S2":
            return f"{_middle(pairs, 'p50_ms'):.2f} / {_middle(pairs, 'p99_ms'):.2f} ms"
        case "S3":
            return _number(_middle(pairs, "step_ms"), " ms")
        case _:
            return _number(_middle(pairs, "all_done_s"), " s")


def _middle(pairs: list[Pair], number: str) -> float:
    found = sorted(pair.ours[number] for pair in pairs)
    return found[len(found) // 2]
