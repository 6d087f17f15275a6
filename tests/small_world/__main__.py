"""The small world from the command line.

python -m tests.small_world              all worlds, and every mutant with the shortest way to it
python -m tests.small_world full         one of them: full, timed, alone, small
python -m tests.small_world mutants      only the mutants
"""

import argparse
import sys

from tests.small_world.explore import Found, explore
from tests.small_world.model import ALONE, FULL, SMALL, TIMED
from tests.small_world.mutants import MUTANTS

WORLDS = {"small": SMALL, "alone": ALONE, "timed": TIMED, "full": FULL}


def show_worlds(names: list[str]) -> bool:
    """Explore these worlds; whether all of them keep their promises."""
    print(f"{'world':8}{'states':>12}{'moves':>12}{'finished':>10}{'farthest':>10}{'seconds':>9}  verdict")
    is_sound = True
    for name in names:
        found = explore(WORLDS[name])
        numbers = f"{found.states:12,}{found.moves:12,}{found.finished:10,}{found.depth:10}{found.seconds:9.1f}"
        print(f"{name:8}{numbers}  {found.broken or 'every promise is kept'}", flush=True)
        _show_trace(found)
        is_sound &= found.broken is None
    return is_sound


def show_mutants() -> bool:
    """Switch off one rule at a time; whether each is missed."""
    is_missed = True
    for name, rules in MUTANTS.items():
        found = explore(SMALL, rules)
        print(f"\n{name}: {found.broken or 'NOT FOUND'} (after {found.states:,} states)")
        _show_trace(found)
        is_missed &= found.broken is not None
    return is_missed


def _show_trace(found: Found) -> None:
    for number, move in enumerate(found.trace, start=1):
        print(f"  {number:2}  {move}")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.small_world")
    parser.add_argument("what", nargs="?", choices=["all", "mutants", *WORLDS], default="all")
    what = parser.parse_args().what
    is_sound = what == "mutants" or show_worlds(list(WORLDS) if what == "all" else [what])
    if what in {"all", "mutants"}:
        is_sound &= show_mutants()
    return 0 if is_sound else 1


if __name__ == "__main__":
    sys.exit(main())
