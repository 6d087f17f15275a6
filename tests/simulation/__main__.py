"""The simulator from the command line.

python -m tests.simulation run --seeds 3000 [--first 0] [--jobs 2]
python -m tests.simulation repeat SEED [--tape "3 0x17 1"]     one schedule, with everything that happens in it
python -m tests.simulation shrink SEED                         the shortest tape that fails in the same way
python -m tests.simulation mutants [--mended] [--only NAME]    planted bugs, and how many seeds it takes to find each
python -m tests.simulation digests --seeds 50                  one digest for all that happened, to compare
"""

import argparse
import hashlib
import logging
import os
import sys
import tempfile
from pathlib import Path

from tests.pythons import installed, said
from tests.simulation import reach, shrinking
from tests.simulation.hunting import hunt
from tests.simulation.invariants import Violation
from tests.simulation.known import known_seeds
from tests.simulation.mutants import MENDED, MUTANTS
from tests.simulation.running import Failure, lived, run_all
from tests.simulation.schedule import Schedule
from tests.simulation.simulator import Tape

SHRINK_TRIES = 1000


def run(options: argparse.Namespace) -> int:
    """Run seeds, those that ever failed first; say what was reached, and how to repeat what failed."""
    known = known_seeds()
    seeds = [*known, *range(options.first, options.first + options.seeds)]
    total, seconds = run_all(seeds, options.jobs, shows=True)
    print(total.table(seconds))
    if known:
        print(f"of these, {len(known)} schedules are those that ever failed (tests/seeds.yaml); they run first")
    missed = reach.missed(total.reached) if options.seeds >= reach.ENOUGH else []
    if missed:
        print(f"never reached: {', '.join(missed)}")
    if total.failures:
        shrink_seed(total.failures[0].seed)
    return 1 if total.failures or missed else 0


def repeat(options: argparse.Namespace) -> int:
    """One schedule, told step by step."""
    tape = Tape(options.seed, None if options.tape is None else shrinking.read(options.tape))
    schedule = Schedule(tape, traces=True)
    try:
        report = schedule.run()
    except Violation as violation:
        _print_trace(schedule)
        print(f"VIOLATION {violation}")
        return 1
    _print_trace(schedule)
    counts = f"{report.steps} steps, {report.faults} faults, {report.runs} runs"
    print(f"no violation: {counts}, digest {report.digest}")
    return 0


def _print_trace(schedule: Schedule) -> None:
    print("\n".join(schedule.world.trace or []))


def shrink_seed(seed: int) -> None:
    tape = Tape(seed)
    found = lived(tape)
    if not isinstance(found, Failure):
        print(f"seed {seed} does not fail")
        return
    short = shrinking.shrink(seed, tape.choices, found.invariant, SHRINK_TRIES)
    print(f"shrunk from {len(tape.choices)} choices to {len(short)}; see it with:")
    print(f'  python -m tests.simulation repeat {seed} --tape "{shrinking.written(short)}"')


def shrink(options: argparse.Namespace) -> int:
    """The shortest tape for a seed that fails."""
    shrink_seed(options.seed)
    return 0


def digests(options: argparse.Namespace) -> int:
    """One line that is the same wherever the same code runs."""
    total = hashlib.blake2b(digest_size=8)
    for seed in range(options.first, options.first + options.seeds):
        report = lived(Tape(seed))
        total.update(str(report.digest if not isinstance(report, Failure) else report).encode())
    print(total.hexdigest())
    return 0


def across(options: argparse.Namespace) -> int:
    """The same seeds are the same schedules on every Python."""
    with tempfile.TemporaryDirectory() as folder:
        found = {
            python: said(
                installed(python, Path(folder) / f"venv-{number}"),
                number,
                "tests.simulation",
                *("digests", "--seeds", str(options.seeds)),
            )
            for number, python in enumerate(options.pythons)
        }
    for python, digest in found.items():
        print(f"{python}: {digest}")
    return 0 if len(set(found.values())) == 1 and "" not in found.values() else 1


def mutants(options: argparse.Namespace) -> int:
    """Switch on one planted bug after the other; each must be caught."""
    planted = MENDED if options.mended else MUTANTS
    wanted = [name for name in planted if options.only is None or options.only.lower() in name.lower()]
    caught = 0
    print(f"{'planted bug':66} {'caught':>7} {'median seeds':>13} {'most':>6}  first violated")
    for name, found in hunt(wanted, options.seeds, options.rounds, options.jobs):
        caught += found.is_caught
        print(f"{name:66} {found}", flush=True)
    print(f"{caught} of {len(wanted)} caught within {options.seeds:,} seeds each time, {options.rounds} times")
    return 0 if caught == len(wanted) else 1


def main() -> int:
    lines = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__, formatter_class=lines)
    commands = parser.add_subparsers(required=True)
    for command in (run, repeat, shrink, digests, across, mutants):
        sub = commands.add_parser(command.__name__, help=command.__doc__)
        sub.set_defaults(command=command)
        if command in {run, digests}:
            sub.add_argument("--seeds", type=int, default=1000)
            sub.add_argument("--first", type=int, default=0)
            sub.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
        elif command is across:
            sub.add_argument("pythons", nargs="+")
            sub.add_argument("--seeds", type=int, default=300)
        elif command is mutants:
            sub.add_argument("--only")
            sub.add_argument("--mended", action="store_true", help="those that were found in the engine and mended")
            sub.add_argument("--seeds", type=int, default=10_000)
            sub.add_argument("--rounds", type=int, default=5)
            sub.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
        else:
            sub.add_argument("seed", type=int)
            sub.add_argument("--tape")
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)
    return int(options.command(options))


if __name__ == "__main__":
    sys.exit(main())
