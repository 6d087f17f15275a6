"""`python -m bench.peers`: the same scenarios in Perdure and in other engines, in turns; Markdown and JSON.

Every contender is a process of its own on a fresh database, all of them on the same disk, and those on Postgres on
the same server, synced as it comes. Sizes are those that the slowest one can do in the time it is given; whoever
cannot is told as not finished. Engines that are not there are skipped, with a word on how to get them.
"""

import argparse
import platform
import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import msgspec
from rich.console import Console

from bench.budget import spin_ms
from bench.database import Numbers
from bench.peers.contenders import CONTENDERS, Contender, NotFinished, Skipped
from bench.server import serving, version_of


class Compared(msgspec.Struct, frozen=True):
    """One scenario: how large it is, and how its numbers are shown."""

    title: str
    shown: str
    size: int
    quick: int
    # Perdure is through too soon with what the others can do.
    ours: int | None = None


SCENARIOS = {
    "S1": Compared("workflows of 5 steps", "{workflows_per_s:,.0f}/s", 1500, 100, ours=6000),
    "S2": Compared("one step, one run at a time, p50 / p99", "{p50_ms:.2f} / {p99_ms:.2f} ms", 300, 60),
    "S3": Compared("a long run, per step", "{step_ms:.2f} ms", 1000, 50),
    "S4": Compared("2,000 sleeps: how late, p50 / p99", "{late_p50_ms:.0f} / {late_p99_ms:.0f} ms", 2000, 50),
    "S5": Compared("signals to 500 waiting runs", "{here_per_s:,.0f}/s", 2, 1),
    "S6": Compared("a run with 500 children", "{seconds:.2f} s", 500, 20),
    "S9": Compared("starts", "{starts_per_s:,.0f}/s", 3000, 100, ours=10_000),
}
SECONDS, QUICK_SECONDS = 20.0, 4.0
NOT_FINISHED, NOTHING = "not finished", "-"


class Comparison(msgspec.Struct, frozen=True):
    """What all of them reached: by scenario and contender, the numbers of each turn or why there are none."""

    python: str
    postgres: str
    spin_ms: float
    command: str
    is_quick: bool
    numbers: dict[str, dict[str, list[Numbers]]]
    troubles: dict[str, dict[str, list[str]]]
    skipped: dict[str, str]


def compared(options: argparse.Namespace, console: Console) -> Comparison:
    """Everybody at everything, in turns."""
    present, skipped = _present(options.only, console)
    numbers: dict[str, dict[str, list[Numbers]]] = {name: {} for name in options.scenarios}
    troubles: dict[str, dict[str, list[str]]] = {name: {} for name in options.scenarios}
    with serving(options.store) as (server, _):
        assert server is not None
        for turn in range(options.turns):
            for scenario in options.scenarios:
                for contender in present:
                    console.print(f"turn {turn + 1} of {options.turns}: {scenario} {contender.name}", style="dim")
                    try:
                        found = _measured(contender, scenario, server, quick=options.quick)
                        numbers[scenario].setdefault(contender.name, []).append(found)
                    except NotFinished as trouble:
                        console.print(f"  {trouble}", style="yellow")
                        troubles[scenario].setdefault(contender.name, []).append(str(trouble))
        postgres = version_of(server)
    command = f"python -m bench.peers{' --quick' if options.quick else ''} --turns {options.turns}"
    return Comparison(
        platform.python_version(), postgres, spin_ms(), command, options.quick, numbers, troubles, skipped
    )


def _present(only: Sequence[str], console: Console) -> tuple[list[Contender], dict[str, str]]:
    """Those who can run here, and why the others cannot."""
    present, skipped = [], {}
    for contender in CONTENDERS:
        if only and not any(contender.name.casefold().startswith(name.casefold()) for name in only):
            continue
        try:
            contender.check()
            present.append(contender)
        except Skipped as why:
            skipped[contender.name] = str(why)
            console.print(f"{contender.name} is skipped: {why}", style="yellow")
    return present, skipped


def _measured(contender: Contender, scenario: str, server: str, *, quick: bool) -> Numbers:
    sizes = SCENARIOS[scenario]
    size = sizes.quick if quick else (sizes.ours or sizes.size) if contender.name.startswith("Perdure") else sizes.size
    with tempfile.TemporaryDirectory(dir=Path.cwd(), prefix=".bench-") as scratch:
        return contender.measure(scenario, Path(scratch), size, server, QUICK_SECONDS if quick else SECONDS)


def markdown(found: Comparison) -> str:
    """The table, as a README takes it: the middle of all turns."""
    names = [each.name for each in CONTENDERS if any(each.name in column for column in _columns(found))]
    lines = [f"| | {' | '.join(names)} |", f"|---|{'---:|' * len(names)}"]
    for scenario, by_name in found.numbers.items():
        cells = [_cell(scenario, by_name.get(name, []), found.troubles[scenario].get(name, [])) for name in names]
        lines.append(f"| {scenario}: {SCENARIOS[scenario].title} | {' | '.join(cells)} |")
    lines += ["", f"`{found.command}`; Python {found.python}, {found.postgres}, spin {found.spin_ms:.1f} ms."]
    lines += ["Quick: sizes are smaller than the titles say, and too small to mean much."] if found.is_quick else []
    lines += [f"{name} was skipped: {why}." for name, why in found.skipped.items()]
    return "\n".join(lines) + "\n"


def _columns(found: Comparison) -> "list[dict[str, list[Numbers]] | dict[str, list[str]]]":
    return [*found.numbers.values(), *found.troubles.values()]


def _cell(scenario: str, turns: Sequence[Numbers], troubles: Sequence[str]) -> str:
    if len(troubles) >= len(turns):
        return NOT_FINISHED if troubles else NOTHING
    middles = {number: statistics.median(turn[number] for turn in turns) for number in turns[0]}
    return SCENARIOS[scenario].shown.format(**middles)


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.peers", description="Other engines beside ours.")
    parser.add_argument("scenarios", nargs="*", metavar="SCENARIO", help=f"all, or some of {', '.join(SCENARIOS)}")
    parser.add_argument("--only", action="append", default=[], metavar="NAME", help="contenders whose names begin so")
    parser.add_argument("--store", default="postgres", metavar="URL", help="a Postgres server to use; else one is made")
    parser.add_argument("--turns", type=int, help="how often each runs (3; quick: 1)")
    parser.add_argument("--quick", action="store_true", help="small sizes: does it work, not how fast it is")
    parser.add_argument("--json", type=Path, default=Path("bench/results/peers.json"), metavar="FILE")
    options = parser.parse_args()
    options.turns = options.turns or (1 if options.quick else 3)
    options.scenarios = options.scenarios or list(SCENARIOS)
    if unknown := set(options.scenarios) - set(SCENARIOS):
        parser.error(f"there is no scenario {', '.join(sorted(unknown))}")
    return options


def main() -> int:
    options = parsed()
    found = compared(options, Console(stderr=True))
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_bytes(msgspec.json.format(msgspec.json.encode(found), indent=2) + b"\n")
    table = options.json.with_suffix(".md")
    table.write_text(markdown(found), encoding="utf-8")
    print(markdown(found))
    print(f"written to {options.json} and {table}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
