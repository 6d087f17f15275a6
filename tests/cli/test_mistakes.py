"""What newcomers get wrong, and what they are told: one line each, with what to do."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.cli.modules import SHOP
from tests.cli.shell import Shell, Zygote

# What is typed, the exit code, what is said.
MODULES: list[tuple[str, int, str]] = [
    ("run", 64, "Missing argument 'MODULE:WORKFLOW'; see `perdure run --help`"),
    ("run shop", 64, "shop names no workflow; write shop:books (workflows in shop: books, checkout, counts_down"),
    ("run shop:", 64, "shop: names no workflow; write shop:books"),
    (
        "run shop:chekout",
        64,
        "there is no 'chekout' in shop (did you mean checkout?) (workflows in shop: books, checkout, coun",
    ),
    ("run shop:zzz", 64, "there is no 'zzz' in shop (workflows in shop: books, checkout"),
    ("run shop:reserve", 64, "shop:reserve is an activity, not a workflow (workflows in shop: books, checkout"),
    ("run shop:plain", 64, "shop:plain is a plain function without @workflow, not a workflow"),
    ("run shop:os", 64, "shop:os is of type module, not a workflow"),
    ("run sop:greet", 64, "no module named 'sop' can be imported from"),
    ("run sop:greet", 64, "; did you mean shop?"),
    ("run zzz:greet", 64, "; check the name and the folder"),
    ("run checkout", 64, "; did you mean the workflow shop:checkout?"),
    ("run shop.greet", 64, "a workflow is named after a colon: shop:greet"),
    ("run ./shop:greet", 64, "the file 'shop' is not there; write shop.py"),
    ("run nope.py:greet", 64, "the file 'nope.py' is not there; name a .py file or an importable module"),
    ("run folder/:greet", 64, "the file 'folder' is a folder; name a .py file or an importable module"),
    ("run :greet", 64, "no module is named; write MODULE:WORKFLOW"),
    ("run empty.py:greet", 64, "there is no 'greet' in empty.py (workflows in empty.py: none; decorate one"),
    (
        "run empty.py",
        64,
        "empty.py names no workflow; write empty.py:WORKFLOW (workflows in empty.py: none; decorate one",
    ),
    ("run json.py:greet", 64, "the file json.py has the name of a module that is loaded already; rename the file"),
    ("run broken:greet", 1, "importing broken failed: SyntaxError: invalid syntax (at "),
    ("run raises:greet", 1, "importing raises failed: ZeroDivisionError: division by zero (at "),
    ("run exits:greet", 1, "importing exits failed: SystemExit: bye (at "),
    ("run needs:greet", 1, "importing needs failed: ModuleNotFoundError: No module named 'not_installed' (at "),
    ("run lacks:greet", 1, "importing lacks failed: ImportError: cannot import name 'checkuot' from 'shop'"),
    ("run twice:greet", 1, "importing twice failed: DuplicateName: the workflow name 'greet' is taken by shop.greet"),
    ("run no_async.py:greet", 1, "BadOption: the workflow greet is a plain def; write `async def greet` (at "),
    ("run latin.py:greet", 1, "importing latin.py failed: SyntaxError: "),
    ("worker", 64, "no module is named; write one, such as `perdure worker shop`, or set modules in the config file"),
    ("worker nope", 64, "no module named 'nope' can be imported from"),
    ("worker shop:nope", 64, "shop:nope names one workflow, a worker works all of a module; write shop alone, or give"),
    ("worker shop:checkout", 64, "shop:checkout names one workflow, a worker works all of a module; write shop alone"),
    ("worker broken", 1, "importing broken failed: SyntaxError: invalid syntax (at "),
    ("worker shop --url sqlite://", 64, "sqlite:// is the memory of one process, no other can see it"),
    ("worker empty.py", 64, "neither a workflow nor an activity on a queue is in empty.py; decorate"),
    ("worker nope --reload", 64, "no module named 'nope' can be imported from"),
]

ARGUMENTS: list[tuple[str, int, str]] = [
    ("run shop:greet", 64, "greet: missing a required argument: 'name'; it takes (name: str, times: int = 1) -> str"),
    ('run shop:greet {"nme":1}', 64, "greet: it has no parameter nme"),
    ("run shop:greet []", 64, "greet: missing a required argument: 'name'"),
    ('run shop:greet ["a",1,2]', 64, "greet: 3 given; it takes (name: str, times: int = 1) -> str"),
    ("run shop:greet [1]", 64, "greet, argument 'name': Expected `str`, got `int`"),
    ("run shop:greet 7", 64, "greet: give the arguments as a JSON object by name or an array in order"),
    ("run shop:greet {ann", 64, "ARGUMENTS is not JSON ({ann): object keys must be strings at character 2; for exam"),
    ("run shop:greet {'name':'ann'}", 64, "at character 2; JSON writes texts in double quotes; for example: "),
    ('run shop:greet ["ann",True]', 64, "invalid character at character 8; JSON writes true; for example: "),
    ('run shop:greet ["ann"', 64, """ARGUMENTS is not JSON (["ann"): it ends too early; for example: """),
    ('run shop:greet ["é",]', 64, "at character 6; for example: "),
    ("run shop:greet @two-lines.json", 64, "(read from two-lines.json): expected ',' or '}' at line 3, character 3"),
    (
        'run shop:greet {"name": "ann"}',
        64,
        ' ("ann"}); JSON is one word, put it in single quotes; see `perdure run --help`',
    ),
    ("run shop:greet @nope.json", 64, "ARGUMENTS cannot be read from the file 'nope.json': No such file or directory"),
    ("run shop:greet @folder", 64, "ARGUMENTS cannot be read from the file 'folder': Is a directory"),
    ("run shop:greet -", 64, "ARGUMENTS is not JSON (read from standard input): it is empty; for example: "),
    (
        'run shop:greet ["b"] --id taken',
        1,
        """id 'taken' is taken by greet({"name":"a","times":1}) (COMPLETED), wanted for""",
    ),
    ('run shop:greet ["b"] --id ', 64, "workflow id '' is empty; use 1 to 200 printable characters"),
    ('run shop:greet ["b"] --wait soon', 64, "Invalid value for '--wait': 'soon' is not a duration; write 30, 30s"),
    ('run shop:greet ["b"] --wait -5', 64, "'-5' is not a duration; write 30, 30s, 5m, 2h or 1d"),
    ('run shop:greet ["b"] --wait 5y', 64, "'5y' is not a duration; write 30, 30s, 5m, 2h or 1d"),
    ('run shop:greet ["b"] --wait inf', 64, "'inf' is not a duration"),
    ('run shop:greet ["b"] --wait 99999999d', 64, "'99999999d' is more than 1000 years; leave it out"),
    ('start shop:greet ["b"] --delay soon', 64, "Invalid value for '--delay': 'soon' is not a duration; write 30, 30s"),
    ('start shop:greet ["b"] --priority high', 64, "Invalid value for '--priority'"),
    ('start shop:greet ["b"] --attribute foo', 64, "the attribute 'foo' has no name and value; write --attribute tena"),
    ('start shop:greet ["b"] --on-conflict retrun', 64, "'retrun' is not one of 'return', 'reject', 'replace', 'term"),
    ('start shop:greet ["b"] --queue ', 64, "queue '' is empty; use 1 to 200 printable characters"),
    ('start shop:greet ["b"] --url sqlite://', 64, "sqlite:// is the memory of one process"),
    ("wait taken --timeout", 64, "Option '--timeout' requires an argument"),
    ("run shop:greet --nope", 64, "No such option: --nope"),
    ("bogus", 64, "No such command 'bogus'; see `perdure --help`"),
    ("lisst", 64, "No such command 'lisst'. Did you mean 'list'? See `perdure --help`"),
    ("--nope", 64, "No such option: --nope"),
    ("--url sqlite:///x.db show s", 64, "--url goes after the command: `perdure COMMAND --url`; see `perdure --help`"),
    ("--json list", 64, "--json goes after the command: `perdure COMMAND --json`"),
    ("completion bash --url x", 64, "No such option: --url"),
    ("completion tcsh", 64, "'tcsh' is not one of 'bash', 'zsh', 'fish'"),
]

RUNS: list[tuple[str, int, str]] = [
    ("show", 64, "Missing argument 'ID'; see `perdure show --help`"),
    ("show nope", 1, "no run 'nope' in namespace 'main'; `perdure list` shows the runs there are"),
    ("show takn", 1, "no run 'takn' in namespace 'main' (did you mean taken?); `perdure list` shows the runs there"),
    ("show taken --namespace other", 1, "there is no namespace 'other'; `perdure namespace create other` makes it, "),
    ("events nope", 1, "no run 'nope' in namespace 'main'"),
    ("events taken --after -1", 64, "Invalid value for '--after'"),
    ("wait nope", 1, "no run 'nope' in namespace 'main'"),
    ("signal nope approved", 1, "no run 'nope' in namespace 'main'"),
    ("signal taken", 64, "name the run and the signal: `perdure signal ID NAME PAYLOAD`; or --where for many runs"),
    (
        "signal taken approved yes",
        64,
        "PAYLOAD is not JSON (yes): invalid character at character 1; for example: true, 42",
    ),
    (
        "signal taken approved",
        1,
        "has ended (COMPLETED); there is nobody to signal and nothing to stop or resume any more",
    ),
    (
        "list --status fialed",
        64,
        "no status is named 'fialed' (did you mean failed?); there are pending, running, susp",
    ),
    ("list --status nope", 64, "no status is named 'nope'; there are pending, running, suspended, completed"),
    ("list --after nope", 1, "no run 'nope' in namespace 'main'"),
    ("list --parent nope", 1, "no run 'nope' in namespace 'main'"),
    ("cancel", 64, "name the run to cancel, or say which ones with --where"),
    ("cancel nope", 1, "no run 'nope' in namespace 'main'"),
    ("cancel taken", 1, "run 'taken' has ended (COMPLETED)"),
    ("cancel taken --force --deadline 3", 64, "--force leaves no time to clean up, --deadline gives some; choose one"),
    ("cancel taken --timeout 3", 64, "--timeout limits the time that --wait waits; give both"),
    ("terminate taken", 1, "run 'taken' has ended (COMPLETED)"),
    ("list --limit 0", 64, "Invalid value for '--limit'"),
    ("list --limit many", 64, "Invalid value for '--limit'"),
]

DATABASES: list[tuple[str, int, str]] = [
    ('run shop:greet ["a"] --url mysql://x', 64, "the URL 'mysql://x' names no store; use sqlite:///file.db"),
    (
        'run shop:greet ["a"] --url shop.db',
        64,
        "the URL 'shop.db' names no store (did you mean sqlite:///shop.db?); use",
    ),
    ('run shop:greet ["a"] --url sqlite://shop.db', 64, "(did you mean sqlite:///shop.db?); use sqlite:///file"),
    ("list --url sqlite:///perdure.db?mode=ro", 64, "has options after the ?, SQLite takes none"),
    ('run shop:greet ["a"] --url sqlite:///no/x.db', 1, "the folder 'no' does not exist; create it first"),
    ('run shop:greet ["a"] --url sqlite:///folder', 1, "this is a folder; name a file"),
    ('run shop:greet ["a"] --url sqlite:///shop.py', 1, "sqlite:///shop.py: the file is not a SQLite database"),
    ('run shop:greet ["a"] --url sqlite:///newer.db', 1, "the database has schema 99, this Perdure knows up to"),
    ("list --url sqlite:///newer.db", 1, "upgrade perdure, nothing was changed"),
    ("list --url sqlite:///nope.db", 1, "there is no database 'nope.db'; name another with --url or PERDURE_URL"),
    ("list --url sqlite://", 64, "sqlite:// is the memory of one process, no other can see it; name a file"),
    ("list --url sqlite:///shop.py", 1, "sqlite:///shop.py: the file is not a SQLite database"),
    ("list --url sqlite:///folder", 1, "this is a folder; name a file"),
    ("audit --url sqlite:///folder", 1, "error: sqlite:///folder: this is a folder; name a file with --url"),
    ("list --url sqlite:///short.db", 1, "sqlite:///short.db: the file"),
    ("list --url mysql://x", 64, "the URL 'mysql://x' names no store; use sqlite:///file.db"),
    ("doctor --url sqlite://", 64, "sqlite:// is the memory of one process, no other can see it"),
    ("doctor --url mysql://x", 64, "the URL 'mysql://x' names no store"),
    ("wait x --url sqlite:///nope.db", 1, "there is no database 'nope.db'"),
    ("tick --url sqlite:///nope.db", 1, "there is no database 'nope.db'"),
    ("list --url htp://127.0.0.1:7373", 64, "or http://host:port of a server"),
    ("dev shop --listen 0.0.0.0:1", 64, "a server without keys is for this machine alone"),
]

MISTAKES = MODULES + ARGUMENTS + RUNS + DATABASES

FILES = {
    "shop.py": SHOP,
    "empty.py": "",
    "json.py": "",
    "broken.py": "def (:",
    "raises.py": "\n1 / 0\n",
    "exits.py": "raise SystemExit('bye')",
    "needs.py": "import not_installed\n",
    "lacks.py": "from shop import checkuot\n",
    "twice.py": "import shop, perdure\n@perdure.workflow\nasync def greet(): ...\n",
    "no_async.py": "import perdure\n@perdure.workflow\ndef greet(): ...\n",
    "two-lines.json": '{\n  "name": "ann"\n  "times": 2\n}\n',
}


@pytest.fixture(scope="module")
def messy(zygote: Zygote, tmp_path_factory: pytest.TempPathFactory) -> Shell:
    """A folder with broken modules and databases, and one with a closed run."""
    folder = tmp_path_factory.mktemp("messy")
    for name, text in FILES.items():
        (folder / name).write_text(text)
    (folder / "latin.py").write_bytes("name = 'é'".encode("latin-1"))
    (folder / "folder").mkdir()
    shell = Shell(zygote, folder)
    for words in (["--id", "taken"], ["--url", "sqlite:///newer.db"]):
        assert shell("run", "shop:greet", '["a"]', *words).code == 0
    with closing(sqlite3.connect(folder / "newer.db")) as db:
        db.execute("update perdure_schema set version = 99")
        db.commit()
    (folder / "short.db").write_bytes((folder / "perdure.db").read_bytes()[:5000])
    return shell


@pytest.mark.parametrize(("typed", "code", "said"), MISTAKES, ids=[typed for typed, _, _ in MISTAKES])
def test_a_mistake_gets_one_clear_line(messy: Shell, typed: str, code: int, said: str) -> None:
    """No traceback: what happened, to which thing, what to do."""
    done = messy(*typed.split(" "))
    assert (done.code, done.out) == (code, ""), done.err
    assert done.err.startswith("error: ")
    assert said in done.err
    assert done.err.count("\n") == 1


def test_mistakes_leave_no_database_behind(messy: Shell) -> None:
    """A command that only looks, or cannot start, must not create what it did not find."""
    before = sorted(path.name for path in messy.folder.glob("*.db"))
    for typed, _, _ in MODULES[:3] + ARGUMENTS[:3] + RUNS[:3]:
        assert messy(*typed.split(" "), PERDURE_URL="sqlite:///fresh.db").code != 0
    assert sorted(path.name for path in messy.folder.glob("*.db")) == before


def test_looking_into_a_database_of_somebody_else_leaves_it_alone(shell: Shell) -> None:
    """A wrong --url must not put our tables into the database of another program."""
    other = shell.folder / "other.db"
    with closing(sqlite3.connect(other)) as db:
        db.execute("create table customers (name)")
        db.commit()
    before = other.read_bytes()

    done = shell("list", "--url", "sqlite:///other.db")

    assert (done.code, done.out) == (1, "")
    assert done.err.startswith("error: sqlite:///other.db: it is the database of another program (tables: customers); ")
    assert "PERDURE_ADOPT=1" in done.err
    assert other.read_bytes() == before


def test_words_that_are_no_text_are_refused(shell: Shell) -> None:
    """A shell passes any bytes; they become half characters in Python, which nothing can write."""
    broken = b"\xff".decode(errors="surrogateescape")
    assert shell("run", "shop:greet", f'["{broken}"]').code == 64
    done = shell("run", "shop:greet", '["a"]', "--id", broken)
    assert (done.code, done.err.count("\n")) == (64, 1)
    assert shell("run", f"{broken}:greet").code == 64


def test_a_missing_folder_is_told_from_a_missing_file(shell: Shell, tmp_path: Path) -> None:
    done = shell("list", "--url", f"sqlite:///{tmp_path}/no/such.db")
    assert done.code == 1
    assert "there is no database" in done.err
