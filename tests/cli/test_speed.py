"""How much the command line and the package load before they answer, beside the libraries they are made of."""

import subprocess
import sys

# Modules of the standard library and of our own; a library of others would bring a hundred.
FEW = 60


def loaded_by(program: str) -> int:
    """How many modules are there at its end; unlike the time it takes, that is the same on every machine."""
    words = [sys.executable, "-c", f"import sys; {program}; print(len(sys.modules))"]
    return int(subprocess.run(words, capture_output=True, text=True, check=True).stdout.splitlines()[-1])


def test_help_and_import_load_little() -> None:
    """A command line that is slow to say how it is used is not asked again."""
    help_loads = loaded_by("from perdure.cli.entry import outcome; outcome(['--help'])")
    assert help_loads <= loaded_by("import typer, rich") + FEW
    assert loaded_by("import perdure") <= loaded_by("pass") + FEW


def test_help_loads_neither_the_engine_nor_what_tables_need() -> None:
    look = (
        "import sys; from perdure.cli.entry import outcome; outcome(['--help']); "
        "print([name for name in ('perdure.app', 'perdure.stores', 'asyncio', 'msgspec', 'rich.console', 'sqlite3') "
        "if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
