"""The user's modules: by importable name, or by the path of a .py file.

In:   MODULE, or MODULE:WORKFLOW, as typed.
Out:  the imported module; the workflow in it.
Tells mistakes in one line: what was looked for, what there is, what broke on import.
"""

import importlib
import importlib.util
import re
import sys
import traceback
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import Any

import perdure
from perdure.cli.output.errors import Mistake, Trouble
from perdure.cli.output.suggestions import did_you_mean, nearest

# So many files are read to guess what was meant.
MOST_READ = 50
PERDURE = Path(perdure.__file__).parent


def workflow_named(target: str) -> "perdure.Workflow[..., Any]":
    """The workflow behind MODULE:WORKFLOW."""
    place, _, name = target.rpartition(":") if ":" in target else (target, "", "")
    module = load(place)
    found = {workflow.name: workflow for workflow in workflows_in(module)}
    there = f"workflows in {place}: {', '.join(sorted(found)) or 'none; decorate one with @workflow'}"
    if not name:
        example = next(iter(sorted(found)), "WORKFLOW")
        raise Mistake(f"{target} names no workflow; write {place}:{example} ({there})")
    wanted = getattr(module, name, None) or found.get(name)
    if wanted is None:
        raise Mistake(f"there is no {name!r} in {place}{did_you_mean(name, found)} ({there})")
    if not isinstance(wanted, perdure.Workflow):
        raise Mistake(f"{place}:{name} is {_kind(wanted)}, not a workflow ({there})")
    return wanted


def workflows_in(module: ModuleType) -> "Iterable[perdure.Workflow[..., Any]]":
    """The workflows a module has at its top level."""
    return [value for value in vars(module).values() if isinstance(value, perdure.Workflow)]


def _kind(value: object) -> str:
    if isinstance(value, perdure.Activity):
        return "an activity"
    if callable(value) and not isinstance(value, type):
        return "a plain function without @workflow"
    return f"of type {type(value).__name__}"


def load(place: str) -> ModuleType:
    """Import a module by its name, seen from the current folder, or from a file."""
    if not place:
        raise Mistake("no module is named; write MODULE:WORKFLOW, such as shop:checkout or shop.py:checkout")
    _see(Path.cwd())
    try:
        return _load_file(Path(place)) if place.endswith(".py") or "/" in place else _load_name(place)
    except Mistake:
        raise
    except (Exception, SystemExit) as error:
        raise Trouble(f"importing {place} failed: {_told(error)}") from error


def _see(folder: Path) -> None:
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))


def _load_name(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise
    except (TypeError, ValueError):
        if name.isidentifier():
            raise
    raise Mistake(f"no module named {name!r} can be imported from {Path.cwd()}; {_hint(name)}")


def _hint(name: str) -> str:
    """What the user who typed this name probably meant."""
    module, _, last = name.rpartition(".")
    if module and Path(f"{module.replace('.', '/')}.py").is_file():
        return f"a workflow is named after a colon: {module}:{last}"
    files = sorted(Path.cwd().glob("*.py"))[:MOST_READ]
    for file in files:
        if re.search(rf"^async def {re.escape(name)}\(", _text(file), re.MULTILINE):
            return f"did you mean the workflow {file.stem}:{name}?"
    near = nearest(name, [file.stem for file in files])
    return "check the name and the folder" if near is None else f"did you mean {near}?"


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _load_file(path: Path) -> ModuleType:
    if not path.is_file():
        found = "a folder" if path.is_dir() else "not there"
        meant = path.with_name(f"{path.name}.py")
        hint = f"write {meant}" if meant.is_file() else "name a .py file or an importable module"
        raise Mistake(f"the file {str(path)!r} is {found}; {hint}")
    path = path.resolve()
    # As when Python is given the file: what lies beside it can be imported.
    _see(path.parent)
    known = sys.modules.get(path.stem)
    if known is not None:
        if getattr(known, "__file__", None) == str(path):
            return known
        raise Mistake(f"the file {path.name} has the name of a module that is loaded already; rename the file")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise Mistake(f"the file {str(path)!r} is not Python; name a .py file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def _told(error: BaseException) -> str:
    """The error, and the line of the user's code it came from."""
    where = ""
    if isinstance(error, SyntaxError):
        return f"SyntaxError: {error.msg} (at {error.filename}:{error.lineno})"
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not _is_machinery(frame.filename)]
    if frames:
        where = f" (at {frames[-1].filename}:{frames[-1].lineno})"
    return f"{type(error).__name__}: {error}{where}"


def _is_machinery(filename: str) -> bool:
    return filename.startswith(("<frozen", str(PERDURE))) or "/importlib/" in filename
