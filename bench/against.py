"""Two revisions in turns: how fast the working tree is beside an earlier revision of itself, in one run.

In:   a revision, scenarios, and how often each of the two runs.
Out:  for each scenario the middle of the ratios, new over old; above 1 the working tree is quicker.

Each side runs its own `bench` on its own `src`, in processes of their own. Both are quicker and slower with whatever
else the machine does, so only ratios of runs that followed each other count.
"""

import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import msgspec
from rich.console import Console
from rich.table import Table

from bench import rules
from bench.bars import Rule
from bench.database import forget, settle
from bench.server import serving


class Turn(msgspec.Struct, frozen=True):
    """One run of the old revision and one of the working tree, right after each other."""

    old: dict[str, float]
    new: dict[str, float]


def compared(revision: str, sizes: dict[str, int], store: str, turns: int, console: Console) -> dict[str, list[Turn]]:
    """So many turns of each scenario; who goes first changes with every turn."""
    found: dict[str, list[Turn]] = {scenario: [] for scenario in sizes}
    with tempfile.TemporaryDirectory(prefix="perdure-against-") as folder, serving(store) as (server, _):
        sides = {"old": _unpacked(revision, Path(folder)), "new": Path.cwd()}
        for number in range(turns):
            for scenario, size in sizes.items():
                console.print(f"turn {number + 1} of {turns}: {scenario}", style="dim")
                order = ("old", "new") if number % 2 == 0 else ("new", "old")
                numbers = {side: _measured(sides[side], scenario, size, server) for side in order}
                found[scenario].append(Turn(**numbers))
    return found


def _unpacked(revision: str, folder: Path) -> Path:
    """The files of a revision, in a folder of their own."""
    packed = subprocess.run(["git", "archive", revision], check=True, stdout=subprocess.PIPE)
    subprocess.run(["tar", "--extract", "--directory", str(folder)], check=True, input=packed.stdout)
    return folder


def _measured(tree: Path, scenario: str, size: int, server: str | None) -> dict[str, float]:
    with tempfile.TemporaryDirectory(dir=Path.cwd(), prefix=".bench-") as scratch:
        settle(Path(scratch), server)
        command = [sys.executable, "-m", "bench.one", scenario, scratch, str(size)]
        environment = os.environ | {"PYTHONPATH": f"{tree / 'src'}{os.pathsep}{tree}"}
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, cwd=tree, env=environment)
        forget(Path(scratch))
    return msgspec.json.decode(done.stdout, type=dict[str, float])


def ratio(rule: Rule, turns: list[Turn]) -> tuple[float, float, float]:
    """How many times as quick the working tree is: the middle of all turns, the lowest and the highest."""
    ratios = [turn.new[rule.number] / turn.old[rule.number] for turn in turns]
    quicker = sorted(each if rule.is_minimum else 1 / each for each in ratios)
    return statistics.median(quicker), quicker[0], quicker[-1]


def report(found: dict[str, list[Turn]], store: str, revision: str, least: float, console: Console) -> bool:
    """Show all ratios; whether the middle one of every number that has a bar is at least this."""
    table = Table(title=f"the working tree over {revision}, on {store}: above 1 is quicker")
    for name in ("scenario", "", "old", "new", "middle", "spread", "turns"):
        table.add_column(name, justify="left" if name in {"scenario", ""} else "right", no_wrap=True)
    passes = True
    for rule in rules.SQLITE if store == "sqlite" else rules.POSTGRES:
        turns = found.get(rule.scenario, [])
        if not turns or any(turn.old.get(rule.number, 0) <= 0 or turn.new[rule.number] <= 0 for turn in turns):
            continue
        middle, lowest, highest = ratio(rule, turns)
        passes = passes and (middle >= least or rule.limit is None)
        old, new = (statistics.median(getattr(turn, side)[rule.number] for turn in turns) for side in ("old", "new"))
        name = f"{rule.scenario} {rule.number}"
        shown = (f"{old:.4g}{rule.unit}", f"{new:.4g}{rule.unit}", f"{middle:.3f}", f"{lowest:.2f} to {highest:.2f}")
        table.add_row(rule.scenario, name, *shown, str(len(turns)))
    console.print(table)
    console.print(f"{'every' if passes else 'not every'} middle is at least {least:g}", style="dim")
    return passes
