"""How quick the command line answers, beside the libraries it is made of."""

import statistics
import subprocess
import sys
import time

ROUNDS = 5

PROGRAMS = {
    "bare": ["-c", "pass"],
    "libraries": ["-c", "import typer, rich"],
    "import": ["-c", "import perdure"],
    "help": ["-m", "perdure.cli", "--help"],
}


def medians() -> dict[str, float]:
    """Seconds for each program; they take turns, so that a busy machine slows all of them."""
    times: dict[str, list[float]] = {name: [] for name in PROGRAMS}
    for _ in range(ROUNDS):
        for name, words in PROGRAMS.items():
            began = time.perf_counter()
            subprocess.run([sys.executable, *words], stdout=subprocess.DEVNULL, check=True)
            times[name].append(time.perf_counter() - began)
    return {name: statistics.median(each) for name, each in times.items()}


def test_help_and_import_are_quick() -> None:
    """A command line that is slow to say how it is used is not asked again."""
    took = medians()
    assert took["help"] <= 2 * took["libraries"]
    assert took["import"] <= took["bare"] + 0.15


def test_help_loads_neither_the_engine_nor_what_tables_need() -> None:
    look = (
        "import sys; from perdure.cli.entry import outcome; outcome(['--help']); "
        "print([name for name in ('perdure.app', 'perdure.stores', 'asyncio', 'msgspec', 'rich.console', 'sqlite3') "
        "if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
