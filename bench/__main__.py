"""`python -m bench`: the floor and our own runs in turns, a table, and a JSON file.

Every run, the floor's too, is a process of its own: in a fresh folder on the disk of the working directory, or in
a fresh schema on a Postgres server. One bar missed makes the exit status 1, but not of a quick run.
"""

import argparse
import platform
import subprocess
import sys
import tempfile
from pathlib import Path

import msgspec
from rich.console import Console

from bench import against, bars, budget, report, rules
from bench.bars import Pair
from bench.database import forget, settle
from bench.floor import Floor
from bench.server import LockWaits, serving, version_of

SIZES = {"S1": 6000, "S2": 450, "S3": 1000, "S4": 2000, "S5": 10, "S6": 500, "S7": 1000, "S9": 10_000, "memory": 10_000}
QUICK_SIZES = {"S1": 1500, "S2": 150, "S3": 50, "S4": 200, "S5": 2, "S6": 50, "S7": 100, "S9": 1000, "memory": 2000}
# What is held against another side of itself, in turns of its own, and not against the floor.
TURNS = {"deferreds": 12, "requests": 6, "undos": 40, "exposed": 1000, "streams": 100_000, "beats": 3}
QUICK_TURNS = {"deferreds": 1, "requests": 1, "undos": 1, "exposed": 50, "streams": 1000, "beats": 1}
# What there is to see only on a server.
MORE_SIZES = {"transactions": 4, "crowd": 100_000, "crew": 6000, "knocks": 200}
QUICK_MORE_SIZES = {"transactions": 1, "crowd": 2000, "crew": 500, "knocks": 8}
BUDGET = "budget"
IN_TURNS = {*TURNS, "transactions"}
# What has no bar, or turns of its own, is measured once.
ONCE = {"memory", *IN_TURNS}
# Of tables that nobody sees in a terminal.
WIDTH = 160


def sizes_of(store: str, *, quick: bool) -> dict[str, int]:
    """The scenarios for a store, and how large each is."""
    anywhere = (QUICK_SIZES | QUICK_TURNS) if quick else (SIZES | TURNS)
    if store == "sqlite":
        return anywhere
    both = anywhere | (QUICK_MORE_SIZES if quick else MORE_SIZES)
    return {scenario: size for scenario, size in both.items() if scenario != "memory"}


def measured_pair(scenario: str, size: int, server: str | None, waits: LockWaits, floor: Floor | None = None) -> Pair:
    """The floor, unless it is given, and right after it our own run."""
    with tempfile.TemporaryDirectory(dir=Path.cwd(), prefix=".bench-") as scratch:
        settle(Path(scratch), server)
        if floor is None:
            floor = msgspec.json.decode(_output(f"bench.{'postgres_' if server else ''}floor", scratch), type=Floor)
        waits.longest_ms()
        ours = msgspec.json.decode(_output("bench.one", scenario, scratch, str(size)), type=dict[str, float])
        if (waited := waits.longest_ms()) is not None:
            ours["longest_lock_wait_ms"] = waited
        if waited:
            Console(stderr=True).print(f"  {waited:.1f} ms for {waits.what}", style="yellow")
        forget(Path(scratch))
        return Pair(floor, ours)


def _output(module: str, *arguments: str) -> bytes:
    command = [sys.executable, "-m", module, *arguments]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout


def measured(options: argparse.Namespace, console: Console) -> report.Report:
    with serving(options.store) as (server, waits):
        pairs = measured_pairs(options, console, server, waits)
        store = version_of(server)
    sizes = sizes_of(options.store, quick=options.quick)
    lines = [
        bars.judge(rule, pairs[rule.scenario], sizes[rule.scenario])
        for rule in (rules.POSTGRES if server else rules.SQLITE)
        if rule.scenario in pairs and rule.number in pairs[rule.scenario][0].ours
    ]
    spent = None
    if BUDGET in options.scenarios:
        console.print("budget, with a store that costs nothing", style="dim")
        spent = budget.measure(rounds=4 if options.quick else 16)
        lines += bars.judge_budget(spent)
    return report.Report(platform.python_version(), store, budget.spin_ms(), options.quick, pairs, spent, lines)


def measured_pairs(
    options: argparse.Namespace, console: Console, server: str | None, waits: LockWaits
) -> dict[str, list[Pair]]:
    sizes, floor = sizes_of(options.store, quick=options.quick), None
    pairs: dict[str, list[Pair]] = {scenario: [] for scenario in sizes if scenario in options.scenarios}
    for number in range(options.pairs):
        for scenario, found in pairs.items():
            if found and scenario in ONCE:
                continue
            console.print(f"pair {number + 1} of {options.pairs}: {scenario}", style="dim")
            # One is enough to see that it works, or for what is not held against it.
            known = floor if options.quick or scenario in IN_TURNS else None
            found.append(measured_pair(scenario, sizes[scenario], server, waits, known))
            floor = found[-1].floor
    return pairs


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description="How fast, beside the floor of this machine.")
    parser.add_argument("scenarios", nargs="*", metavar="SCENARIO", help="all, or some of S1 to S9, undos and so on")
    parser.add_argument("--store", default="sqlite", help="sqlite, postgres, or the URL of a Postgres server")
    parser.add_argument("--pairs", type=int, help="how often each scenario runs (5; quick: 1)")
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--against", metavar="REV", help="no floor: this revision and the working tree in turns")
    parser.add_argument("--least", type=float, default=0.95, help="with --against: the ratio that must be reached")
    parser.add_argument("--quick", action="store_true", help="small sizes: does it work, not how fast it is")
    options = parser.parse_args()
    options.pairs = options.pairs or (1 if options.quick else 5)
    is_file = options.store == "sqlite"
    options.json = options.json or Path(f"bench/results/{'latest' if is_file else 'postgres'}.json")
    known = [*sizes_of(options.store, quick=options.quick), *([BUDGET] if is_file else [])]
    # An earlier revision may not know of those that are held against themselves.
    options.scenarios = options.scenarios or [each for each in known if not options.against or each not in IN_TURNS]
    if unknown := set(options.scenarios) - set(known):
        parser.error(f"there is no scenario {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    return options


def main() -> int:
    options, console = parsed(), Console()
    if not console.is_terminal:
        console.width = WIDTH
    if options.against:
        sizes = sizes_of(options.store, quick=options.quick)
        wanted = {scenario: size for scenario, size in sizes.items() if scenario in options.scenarios}
        found = against.compared(options.against, wanted, options.store, options.pairs, Console(stderr=True))
        is_enough = against.report(found, options.store, options.against, options.least, console)
        return 0 if is_enough or options.quick else 1
    shown = measured(options, Console(stderr=True))
    report.write(shown, options.json)
    report.show(shown, console)
    console.print(f"written to {options.json}", style="dim")
    return 0 if options.quick or all(line.passes for line in shown.lines) else 1


if __name__ == "__main__":
    sys.exit(main())
