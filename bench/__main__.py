"""`python -m bench`: the floor and our own runs in turns, a table, and a JSON file.

Every run, the floor's too, is a process of its own in a fresh folder on the disk of the
working directory. One bar missed makes the exit status 1, but not of a quick run.
"""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

import msgspec
from rich.console import Console

from bench import bars, budget, report
from bench.bars import Pair
from bench.floor import Floor

SIZES = {"S1": 6000, "S2": 450, "S3": 1000, "S4": 2000, "S5": 10, "S6": 500, "S7": 1000, "S9": 10_000, "memory": 10_000}
QUICK_SIZES = {"S1": 1500, "S2": 150, "S3": 200, "S4": 200, "S5": 2, "S6": 50, "S7": 100, "S9": 1000, "memory": 2000}
BUDGET = "budget"
ALL = [*SIZES, BUDGET]
# What has no bar to be held against is measured once.
ONCE = {"memory"}
# Of tables that nobody sees in a terminal.
WIDTH = 160


def measured_pair(scenario: str, size: int) -> Pair:
    """The floor, and right after it our own run."""
    with tempfile.TemporaryDirectory(dir=Path.cwd(), prefix=".bench-") as scratch:
        floor = msgspec.json.decode(_output("bench.floor", scratch), type=Floor)
        answer = _output("bench.one", scenario, scratch, str(size))
        return Pair(floor, msgspec.json.decode(answer, type=dict[str, float]))


def _output(module: str, *arguments: str) -> bytes:
    command = [sys.executable, "-m", module, *arguments]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout


def measured(options: argparse.Namespace, console: Console) -> report.Report:
    sizes = QUICK_SIZES if options.quick else SIZES
    pairs: dict[str, list[Pair]] = {scenario: [] for scenario in sizes if scenario in options.scenarios}
    for number in range(options.pairs):
        for scenario, found in pairs.items():
            if found and scenario in ONCE:
                continue
            console.print(f"pair {number + 1} of {options.pairs}: {scenario}", style="dim")
            found.append(measured_pair(scenario, sizes[scenario]))
    lines = [
        bars.judge(rule, pairs[rule.scenario], sizes[rule.scenario]) for rule in bars.RULES if rule.scenario in pairs
    ]
    spent = None
    if BUDGET in options.scenarios:
        console.print("budget, with a store that costs nothing", style="dim")
        spent = budget.measure(rounds=4 if options.quick else 16)
        lines += bars.judge_budget(spent)
    return report.Report(*report.versions(), budget.spin_ms(), options.quick, pairs, spent, lines)


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description="How fast, beside the floor of this machine.")
    parser.add_argument("scenarios", nargs="*", metavar="SCENARIO", help=f"all, or some of {', '.join(ALL)}")
    parser.add_argument("--pairs", type=int, help="how often each scenario runs (5; quick: 1)")
    parser.add_argument("--json", type=Path, default=Path("bench/results/latest.json"), metavar="FILE")
    parser.add_argument("--quick", action="store_true", help="small sizes: does it work, not how fast it is")
    options = parser.parse_args()
    options.pairs = options.pairs or (1 if options.quick else 5)
    options.scenarios = options.scenarios or ALL
    if unknown := set(options.scenarios) - set(ALL):
        parser.error(f"there is no scenario {', '.join(sorted(unknown))}")
    return options


def main() -> int:
    options, console = parsed(), Console()
    if not console.is_terminal:
        console.width = WIDTH
    found = measured(options, Console(stderr=True))
    report.write(found, options.json)
    report.show(found, console)
    console.print(f"written to {options.json}", style="dim")
    return 0 if options.quick or all(line.passes for line in found.lines) else 1


if __name__ == "__main__":
    sys.exit(main())
