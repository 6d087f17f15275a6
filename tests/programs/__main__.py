"""Generated programs from the command line.

python -m tests.programs check --count 5000        record, and replay every prefix
python -m tests.programs check --seed 17           one of them
python -m tests.programs record FILE --count 600   keep what was recorded
python -m tests.programs record FILE --using publish  of those that can do this
python -m tests.programs replay FILE...            on this Python
python -m tests.programs across python3.11 ...     each Python records, every one replays all
"""

import argparse
import logging
import sys
import tempfile
import warnings
from pathlib import Path

from perdure.worker.loop.generators import watch_generators
from tests.programs import histories
from tests.programs.checks import check, recorded, replay
from tests.programs.drawing import FEW_PARTS, MOST_PARTS, abilities, drawn, used
from tests.pythons import installed, said


def across(pythons: list[str], count: int) -> int:
    """Record on each Python and replay on every one, each time with another hash seed; answers how many differ."""
    wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        interpreters = {python: installed(python, Path(folder) / f"venv-{n}") for n, python in enumerate(pythons)}
        files = {python: Path(folder) / f"{n}.jsonl" for n, python in enumerate(pythons)}
        for n, (python, interpreter) in enumerate(interpreters.items()):
            said(
                interpreter,
                100 + n,
                "tests.programs",
                "record",
                str(files[python]),
                "--first",
                str(n * count),
                "--count",
                str(count),
            )
        for n, (python, interpreter) in enumerate(interpreters.items()):
            for recorder, path in files.items():
                shown = said(interpreter, 200 + n, "tests.programs", "replay", str(path))
                print(f"recorded by {recorder}, replayed by {python}: {shown}", flush=True)
                wrong += not shown.startswith("0 of")
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.programs")
    parser.add_argument("what", choices=["check", "record", "replay", "across"])
    parser.add_argument("names", nargs="*", help="files, or Pythons")
    parser.add_argument("--seed", type=int, help="only this one")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=600)
    parser.add_argument("--using", action="append", help="only programs that have this ability, or another one given")
    parser.add_argument("--small", action="store_true", help="small programs")
    options = parser.parse_args()
    seeds = range(options.first, options.first + options.count) if options.seed is None else [options.seed]
    match options.what:
        case "check":
            print(f"{len(seeds)} programs, {check(seeds)} events: every prefix replays the same")
        case "record":
            most, wanted = FEW_PARTS if options.small else MOST_PARTS, set(options.using or abilities)
            recordings = [recorded(seed, most) for seed in seeds if used(drawn(seed, most)) & wanted]
            histories.write(Path(options.names[0]), recordings)
            print(f"{len(recordings)} programs, {sum(len(each.events) for each in recordings)} events")
        case "replay":
            paths = [Path(name) for name in options.names]
            found = replay(paths)
            print(f"{len(found)} of {sum(1 for path in paths for _ in histories.read(path))} differ", *found, sep="\n")
            return bool(found)
        case _:
            return across(options.names, options.count)
    return 0


if __name__ == "__main__":
    # What a dying program leaves unawaited or unlooked at is its own business.
    warnings.simplefilter("ignore", RuntimeWarning)
    logging.disable(logging.CRITICAL)
    watch_generators()
    sys.exit(main())
