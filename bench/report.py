"""The report: two tables for people, one JSON file for programs."""

import statistics
from pathlib import Path

import msgspec
from rich.console import Console
from rich.table import Table

from bench.bars import Line, Pair
from bench.budget import Budget
from bench.peers.known import NUMBERS, PEERS, SOURCE


class Report(msgspec.Struct, frozen=True):
    """Everything that was measured, and on what."""

    python: str
    store: str
    spin_ms: float
    is_quick: bool
    pairs: dict[str, list[Pair]]
    budget: Budget | None
    lines: list[Line]


def write(report: Report, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(msgspec.json.format(msgspec.json.encode(report), indent=2) + b"\n")


def show(report: Report, console: Console) -> None:
    console.print(_ours(report))
    if NUMBERS.keys() & report.pairs.keys():
        console.print(_peers(report))


def _ours(report: Report) -> Table:
    count = max((len(pairs) for pairs in report.pairs.values()), default=0)
    table = Table(
        title=f"Perdure beside the floor: {count} pairs, medians"
        + (", quick: sizes too small to mean much" if report.is_quick else ""),
        caption=f"Python {report.python}, {report.store}, spin {report.spin_ms:.1f} ms; "
        "workers on, default settings, fsync on, results checked",
    )
    for name in ("scenario", "", "ours", "spread", "beside", "ratio", "bar", "result"):
        table.add_column(name, justify="right" if name in {"ours", "beside", "ratio"} else "left", no_wrap=True)
    for line in report.lines:
        table.add_row(
            line.scenario,
            line.title,
            _number(line.ours, line.unit),
            "" if line.lowest == line.highest else f"{_number(line.lowest)} to {_number(line.highest)}",
            "" if line.beside is None else _number(line.beside, line.beside_unit),
            "" if line.ratio is None else f"{line.ratio:.2f}",
            line.bar if line.limit is None or line.beside is None else f"{line.bar} = {_number(line.limit, line.unit)}",
            "" if line.limit is None else "[green]pass[/]" if line.passes else "[red]miss[/]",
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
    for scenario in sorted(NUMBERS.keys() & report.pairs.keys()):
        title, ours = _COMPARED[scenario]
        others = [NUMBERS[scenario][peer] for peer in PEERS]
        table.add_row(title, ours.format(**_middles(report.pairs[scenario])), *others)
    table.caption = f"* {SOURCE}"
    return table


# What the peers were measured by, and our number in the form theirs are given.
_COMPARED = {
    "S1": ("S1 workflows of 5 steps", "{workflows_per_s:,.0f}/s"),
    "S2": ("S2 start to result, p50 / p99", "{p50_ms:.2f} / {p99_ms:.2f} ms"),
    "S3": ("S3 per step of a long run", "{step_ms:.3g} ms"),
    "S4": ("S4 how late 2,000 sleeps end, p50 / p99", "{late_p50_ms:.1f} / {late_p99_ms:.1f} ms"),
    "S5": ("S5 signals, ours from another process", "{there_per_s:,.0f}/s"),
    "S6": ("S6 a run with 500 children of 1 step", "{seconds:.2f} s"),
    "S7": ("S7 restart to all done (2 s of it a step)", "{all_done_s:.3g} s"),
    "S9": ("S9 starts, ours 200 in flight", "{starts_per_s:,.0f}/s"),
}


def _middles(pairs: list[Pair]) -> dict[str, float]:
    return {number: statistics.median(pair.ours[number] for pair in pairs) for number in pairs[0].ours}
