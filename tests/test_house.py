"""The house: which part may know which, and what the kernel must not touch."""

import ast
import importlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import perdure

SOURCE = Path(__file__).parent.parent / "src" / "perdure"
LAYERS = [
    "errors",
    "clock codec ids threads",
    "kernel",
    "stores",
    "engine",
    "views diagnostics authoring",
    "worker http",
    "app",
    "pipeline ai",
    "dashboard",
    "cli",
    "testing",
]
RANK = {name: rank for rank, names in enumerate(LAYERS) for name in names.split()}
# Findings are told of views, and in their words.
BESIDE = {("diagnostics", "views")}
PURE_KERNEL = {"msgspec", "math", "typing", "enum", "perdure"}


def imports_of(path: Path) -> Iterator[str]:
    """Every module a file imports, those for types as well."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: import absolutely"
            module = node.module or ""
            yield from (f"{module}.{alias.name}" if module == "perdure" else module for alias in node.names)


def part_of(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def files() -> list[Path]:
    return [path for path in SOURCE.rglob("*.py") if path.parent != SOURCE or not path.stem.startswith("__")]


def test_imports_point_down() -> None:
    """A part imports only from parts in lower layers; imports for types count as well."""
    wrong = [
        f"{path.relative_to(SOURCE)} imports {module}"
        for path in files()
        for module in imports_of(path)
        if module.startswith("perdure.")
        and (target := module.split(".")[1]) != part_of(path)
        and target in RANK
        and RANK[part_of(path)] <= RANK[target]
        and (part_of(path), target) not in BESIDE
    ]
    assert wrong == []


def test_the_kernel_is_pure() -> None:
    """No I/O, clock, randomness, asyncio or logging; the rules must run the same anywhere."""
    wrong = [
        f"{path.name} imports {module}"
        for path in (SOURCE / "kernel").glob("*.py")
        for module in imports_of(path)
        if module.split(".")[0] not in PURE_KERNEL
        or (module.startswith("perdure.") and "kernel" not in module and "errors" not in module)
    ]
    calls = [
        f"{path.name}: {node.func.id}()"
        for path in (SOURCE / "kernel").glob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in {"open", "print", "input", "hash", "id"}
    ]
    assert wrong + calls == []


def test_only_the_clock_reads_time() -> None:
    wrong = [
        f"{path.relative_to(SOURCE)} imports {module}"
        for path in files()
        for module in imports_of(path)
        if module == "time" and part_of(path) not in {"clock", "cli", "testing"}
    ]
    assert wrong == []


def test_only_stores_speak_sql() -> None:
    wrong = [
        f"{path.relative_to(SOURCE)} imports {module}"
        for path in files()
        for module in imports_of(path)
        if module in {"sqlite3", "asyncpg"} and part_of(path) != "stores"
    ]
    assert wrong == []


def test_nothing_unpickles() -> None:
    wrong = [
        str(path.relative_to(SOURCE))
        for path in files()
        for module in imports_of(path)
        if module in {"pickle", "marshal", "shelve", "dill"}
    ]
    assert wrong == []


def test_public_names_exist_and_none_is_a_submodule() -> None:
    for name in perdure.__all__:
        assert getattr(perdure, name) is not None
    submodules = {path.stem for path in SOURCE.iterdir() if path.suffix == ".py" or path.is_dir()}
    assert set(perdure.__all__) & submodules == set()


def test_importing_perdure_imports_none_of_its_parts() -> None:
    """Names are imported when they are first used; a script that only imports us stays quick."""
    program = "import sys, perdure; print([m for m in sys.modules if m.startswith('perdure.')])"
    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "[]"


def test_every_public_error_is_drawn_in_the_tree() -> None:
    errors = importlib.import_module("perdure.errors")
    drawn = errors.__doc__ or ""
    missing = [
        name
        for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, Exception) and name not in drawn
    ]
    assert missing == []
