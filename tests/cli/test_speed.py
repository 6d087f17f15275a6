"""How much the command line and the package load before they answer, beside the libraries they are made of."""

import subprocess
import sys
from pathlib import Path

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


def test_commands_that_only_look_load_nothing_of_the_worker(tmp_path: Path) -> None:
    """A client works no runs; what works them takes longer to load than most commands take."""
    url = f"sqlite:///{tmp_path / 'shop.db'}"
    (tmp_path / "shop.py").write_text(
        "from perdure import workflow\n@workflow\nasync def greet() -> str: return 'hello'\n"
    )
    words = [sys.executable, "-m", "perdure.cli", "run", "shop:greet", "--id", "o-17", "--url", url]
    subprocess.run(words, cwd=tmp_path, capture_output=True, check=True)
    for command in (["show", "o-17"], ["list"], ["events", "o-17"]):
        look = (
            f"import sys; from perdure.cli.entry import outcome; code = outcome({[*command, '--url', url]}); "
            "print(code, [name for name in sys.modules if name.startswith('perdure.worker')])"
        )
        done = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, check=True)
        assert done.stdout.splitlines()[-1] == "0 []", command
