"""The house: which part may know which, how large a part may grow, and what the kernel must not touch."""

import ast
import importlib
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

import perdure

SOURCE = Path(__file__).parent.parent / "src" / "perdure"
LAYERS = [
    "errors",
    "access_keys clock codec ids threads tokens",
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
# The same inside the larger rooms: files or folders, those further down know nothing of those below them in this list.
# The longest name that fits is that of the layer: `output/errors` is one of its own, the rest of `output` another.
INSIDE = {
    "stores": [
        "differences health operations queries records",
        "answers dialects listing rows unreadable",
        "columns port",
        "audit rules",
        "sqlite postgres postgres/checks/vacuum_blockers postgres/checks/schema_diff",
        "sqlite/checks postgres/checks postgres/migration",
        "urls",
    ],
    "authoring": [
        "activity_context durations function info lint registry",
        "channels options runtime sinks",
        "activity deferreds requests signals streams workflow",
        "calls undo",
    ],
    "worker": [
        "claims failures loop timers",
        "activities",
        "heartbeats",
        "calls/call",
        "calls runtime",
        "inbox program",
        "live_run",
        "effects held outputs suspects warnings",
        "executor",
        "messages",
        "parking replay",
        "check",
        "worker",
    ],
    "cli": [
        "output/console output/suggestions",
        "output/errors output/tables",
        "output",
        "input",
        "commands command_table",
        "entry",
        "__main__",
    ],
    "http": [
        "table",
        "remote/transport",
        "access mounting/paths problems server_stop values",
        "mounting",
        "callers/sessions catalog policy streaming remote/aiohttp_transport remote/connection",
        "callers/authentication callers/issuers",
        "callers",
        "remote/client remote/views",
        "remote/overview remote/steering",
        "remote/schedules remote/tenancy",
        "remote/worker/commands remote/worker/handed remote/worker/rows remote/worker/writes",
        "remote/worker/lease",
        "remote/worker/claims remote/worker/owner",
        "remote/worker",
        "remote",
        "calls",
        "idempotency",
        "openapi",
        "docs_page",
        "handlers/runs handlers/steering handlers/workers webhooks",
        "handlers/worker_protocol/workers handlers/schedules",
        "handlers/worker_protocol/tasks",
        "handlers/worker_protocol",
        "handlers",
        "routes",
        "asgi",
        "server",
    ],
    "engine": [
        "background held hindrances outages leasing/heartbeat",
        "committer ports outbox/sinks",
        "endings leasing/lease",
        "arrivals duties/duties leasing/living",
        "groups inspector reads waiting/askers leasing/claims leasing/takeover leasing",
        "outputs/followers subscriptions waiting",
        "outputs",
        "stopping",
        "starts tenancy",
        "client outbox ownership schedules steering transactions",
        "duties keys remote",
        "watch",
        "engine",
    ],
}
# What is larger has its reason here.
MOST_FILES = 18
LARGE_FOLDERS = {
    "engine/ports": "a file for each noun",
    "cli/commands": "a file for each command",
    "kernel": "a file for each rule",
    "stores/rules": "a file for each noun that is written or read",
}
MOST_METHODS = 25
LARGE_CLASSES = {
    "Run": "all that can be asked of a run, on its one handle",
    "SyncRun": "the same",
    "Perdure": "all that a program asks of a database, on the one object it opens",
    "SyncPerdure": "the same",
    "RunLoop": "asyncio's own methods, which a loop has to have",
    "RunCommands": "one for each kind of command that a remote worker gives",
}
# Where two classes of one name are.
NAMESAKES = ({"errors", "kernel.events"}, {"views.bulk", "stores.rules.questions"})
# Findings are told of views, and in their words.
BESIDE = {("diagnostics", "views")}
# The time zones and cronsim read files of rules, the same ones for the same name; blake2b gives each time its jitter.
PURE_KERNEL = {
    "bisect",
    "collections",
    "cronsim",
    "datetime",
    "difflib",
    "enum",
    "functools",
    "hashlib",
    "heapq",
    "itertools",
    "math",
    "msgspec",
    "perdure",
    "re",
    "typing",
    "zoneinfo",
}


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


def name_of(path: Path) -> str:
    """The module in a file, without `perdure`."""
    return ".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__")


MODULES = {name_of(path): path for path in SOURCE.rglob("*.py")}


def imported_by(path: Path) -> set[str]:
    """The modules of ours that a file imports, those for types as well."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("perdure."):
            home = str(node.module).removeprefix("perdure.")
            inner = {f"{home}.{alias.name}" for alias in node.names} & MODULES.keys()
            found |= inner
            # A package of which only modules are taken is not imported for what it says itself.
            found |= {home} if len(inner) < len(node.names) else set()
        elif isinstance(node, ast.Import):
            found |= {alias.name.removeprefix("perdure.") for alias in node.names}
    return found & MODULES.keys() - {name_of(path)}


IMPORTS = {name: imported_by(path) for name, path in MODULES.items()}


def layer_in(room: str, module: str) -> int | None:
    """The layer of a module inside its room; None when the list of the room has no name for it."""
    path = module.removeprefix(f"{room}.").replace(".", "/")
    names = {name: rank for rank, names in enumerate(INSIDE[room]) for name in names.split()}
    fitting = [name for name in names if path == name or path.startswith(f"{name}/")]
    return names[max(fitting, key=len)] if fitting else None


@pytest.mark.parametrize("room", INSIDE)
def test_imports_point_down_inside_a_room(room: str) -> None:
    """A file knows only those in lower layers of its room, or in its own; the list names them all."""
    own = [module for module in MODULES if module.startswith(f"{room}.")]
    nameless = [module for module in own if layer_in(room, module) is None]
    assert nameless == []
    wrong = [
        f"{module} imports {target}"
        for module in own
        for target in IMPORTS[module]
        if target.startswith(f"{room}.") and (layer_in(room, module) or 0) < (layer_in(room, target) or 0)
    ]
    assert wrong == []


def reached_from(module: str) -> set[str]:
    """All that a module imports, and what that imports, and so on."""
    found: set[str] = set()
    todo = [module]
    while todo:
        news = IMPORTS[todo.pop()] - found
        found |= news
        todo += news
    return found


def test_no_module_imports_itself_in_the_end() -> None:
    """Modules that import each other can only be understood together."""
    reached = {module: reached_from(module) for module in MODULES}
    cycles = {
        " ".join(sorted({module, *(other for other in found if module in reached[other])}))
        for module, found in reached.items()
        if module in found
    }
    assert cycles == set()


def test_the_databases_do_not_know_each_other() -> None:
    """What both need lies above them, or is told once for both."""
    wrong = [
        f"{module} imports {target}"
        for one, other in (("stores.sqlite", "stores.postgres"), ("stores.postgres", "stores.sqlite"))
        for module in MODULES
        if module.startswith(one)
        for target in IMPORTS[module]
        if target.startswith(other)
    ]
    assert wrong == []


def test_the_command_line_knows_no_store() -> None:
    """What it needs to know of one is told by the app, by diagnostics or by views."""
    wrong = [
        f"{module} imports {target}"
        for module in MODULES
        if module.startswith("cli")
        for target in IMPORTS[module]
        if target.startswith("stores")
    ]
    assert wrong == []


def test_folders_stay_small_enough_to_look_through() -> None:
    folders = Counter(str(path.parent.relative_to(SOURCE)) for path in MODULES.values())
    large = {folder for folder, count in folders.items() if count > MOST_FILES}
    assert large == LARGE_FOLDERS.keys()


def classes() -> Iterator[tuple[str, ast.ClassDef]]:
    """Every class, with the module it is in."""
    for name, path in MODULES.items():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                yield name, node


def methods_of(node: ast.ClassDef, known: dict[str, ast.ClassDef]) -> set[str]:
    """The methods of a class, those it inherits from ours as well; a property that gives a part is none."""
    found = {
        each.name
        for each in node.body
        if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)
        and not any(isinstance(mark, ast.Name) and mark.id == "property" for mark in each.decorator_list)
    }
    for base in node.bases:
        name = ast.unparse(base).partition("[")[0].rpartition(".")[2]
        if name in known and known[name] is not node:
            found |= methods_of(known[name], known)
    return found


def test_a_class_with_many_methods_has_a_reason() -> None:
    """A class that needs more hides a noun; what it inherits counts, or it would hide in its ancestors."""
    known = {node.name: node for _, node in classes()}
    large = {name for name, node in known.items() if len(methods_of(node, known)) > MOST_METHODS}
    assert large == LARGE_CLASSES.keys()


def test_a_class_name_is_used_once() -> None:
    """But for an event and the error of the same name, and for what users call so that never read our SQL."""
    homes: dict[str, set[str]] = {}
    for module, node in classes():
        homes.setdefault(node.name, set()).add(module)
    twice = {name for name, found in homes.items() if len(found) > 1 and found not in NAMESAKES}
    assert twice == set()


def test_a_table_has_one_row_for_a_key() -> None:
    """Of two rows the later one counts, without a word: a merge that keeps both sides may undo one of them."""
    twice = []
    for path in files():
        for node in ast.walk(ast.parse(path.read_text())):
            keys = [ast.unparse(key) for key in node.keys if key is not None] if isinstance(node, ast.Dict) else []
            twice += [f"{path.name}: {key}" for key in set(keys) if keys.count(key) > 1]
    assert twice == []


def test_the_kernel_is_pure() -> None:
    """No I/O, clock, randomness, asyncio or logging; the rules must run the same anywhere."""
    wrong = [
        f"{path.name} imports {module}"
        for path in (SOURCE / "kernel").rglob("*.py")
        for module in imports_of(path)
        if module.split(".")[0] not in PURE_KERNEL
        or (module.startswith("perdure.") and "kernel" not in module and "errors" not in module)
    ]
    calls = [
        f"{path.name}: {ast.unparse(node.func)}()"
        for path in (SOURCE / "kernel").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
        and (
            (isinstance(node.func, ast.Name) and node.func.id in {"open", "print", "input", "hash", "id"})
            or (isinstance(node.func, ast.Attribute) and node.func.attr in {"now", "utcnow", "today"})
        )
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


def test_only_the_command_line_knows_a_terminal() -> None:
    """Views and diagnostics are shown on pages as well."""
    wrong = [
        f"{path.relative_to(SOURCE)} imports {module}"
        for path in files()
        for module in imports_of(path)
        if module.split(".")[0] in {"rich", "typer", "click"} and part_of(path) != "cli"
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
