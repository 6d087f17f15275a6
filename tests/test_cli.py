"""The command line, as it is typed: real processes in an empty folder."""

import json
import os
import pty
import re
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

SHOP = """
import asyncio
import os
from pathlib import Path
from perdure import Retry, Signal, activity, sleep, workflow

approved = Signal("approved", bool)

def trace(what):
    with Path("trace.log").open("a") as file:
        file.write(what + "\\n")

@activity
async def reserve(order: str) -> str:
    trace("reserve")
    return f"hold-{order}"

@activity
async def refuse() -> None:
    raise ValueError("the card [bold]was[/] declined")

@activity(retry=Retry(max_attempts=2, initial_interval=0.01))
async def stumble() -> int:
    if not Path("stumbled").exists():
        Path("stumbled").touch()
        raise ConnectionError("no route")
    return 7

@activity
def drag() -> str:
    trace("drag begins")
    while not Path("let-go").exists():
        pass
    trace("drag ends")
    return "dragged"

@workflow
async def greet(name: str, times: int = 1) -> str:
    return " ".join(["hello", *[name] * times])

@workflow
async def checkout(order: str) -> dict:
    hold = await reserve(order)
    await sleep(0.01)
    return {"hold": hold, "ok": await approved.receive()}

@workflow
async def declines() -> None:
    await refuse.options(retry=Retry(max_attempts=1))()

@workflow
async def stumbles() -> int:
    return await stumble()

@workflow
async def drags() -> str:
    return await drag()

@workflow
async def groups() -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(refuse.options(retry=Retry(max_attempts=1))())

@workflow
async def waits_a_day(order: str) -> bool:
    await reserve(order)
    await reserve(order)
    return await approved.receive(timeout=86_400)

def plain() -> None: ...
"""

TRIP = """
from perdure import Signal, activity, workflow

@activity
async def book_train(to: str) -> str:
    return to

@activity
async def book_flight(to: str) -> str:
    return to

@workflow
async def trip(to: str) -> str:
    await book_train(to)
    await Signal("go").receive()
    return "there"
"""

Perdure = Callable[..., "subprocess.CompletedProcess[str]"]


def environment(**more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PERDURE_")}
    return kept | {"COLUMNS": "140", "TERM": "xterm-256color", "PYTHONUNBUFFERED": "1"} | more


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "perdure.cli", *words]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "shop.py").write_text(SHOP)
    (tmp_path / "trip.py").write_text(TRIP)
    return tmp_path


@pytest.fixture
def perdure(folder: Path) -> Perdure:
    """Runs one command in the folder, its output piped."""

    def run(*words: str, input: str = "", **variables: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            command(*words),
            cwd=folder,
            env=environment(**variables),
            input=input,
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )

    return run


def on_a_terminal(folder: Path, *words: str, **variables: str) -> tuple[int, str]:
    """The exit code and what somebody at a terminal sees, without colours."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        command(*words), cwd=folder, env=environment(**variables), stdin=theirs, stdout=theirs, stderr=theirs
    )
    os.close(theirs)
    seen = bytearray()
    try:
        while chunk := os.read(ours, 4096):
            seen += chunk
    except OSError:  # so Linux says that the other side is closed
        pass
    finally:
        os.close(ours)
    code = process.wait(30)
    plain = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", seen.decode()).replace("\r", "")
    return code, plain


def answer(done: "subprocess.CompletedProcess[str]") -> Any:
    """The JSON a command printed; it went well and complained of nothing."""
    assert (done.returncode, done.stderr) == (0, "")
    return json.loads(done.stdout)


def waits_for_approval(perdure: Perdure, folder: Path, id: str) -> None:
    """A run of `checkout` that stands on disk, waiting for its signal."""
    run_until(perdure, folder, "TimerFired", "run", "shop:checkout", f'["{id}"]', "--id", id)


def run_until(perdure: Perdure, folder: Path, kind: str, *words: str, count: int = 1) -> None:
    """Run for a moment, and again on a slow machine, until so many events of this kind are on disk."""

    def is_there() -> bool:
        done = perdure(*words, "--timeout", "0.3")
        assert done.returncode == 2, done.stderr
        return count_events(folder, kind) == count

    until(is_there)


def count_events(folder: Path, kind: str) -> int:
    """How many events of a kind are on disk."""
    with closing(sqlite3.connect(folder / "perdure.db")) as db:
        try:
            (count,) = db.execute("select count(*) from events where kind = ?", (kind,)).fetchone()
        except sqlite3.OperationalError:  # the tables are not there yet
            return 0
        return int(count)


# Running


def test_run_prints_the_result_as_json_when_piped(perdure: Perdure) -> None:
    assert answer(perdure("run", "shop:greet", '{"name": "ann", "times": 2}')) == "hello ann ann"


@pytest.mark.parametrize(
    ("target", "arguments", "input"),
    [
        ("shop:greet", '["bob"]', ""),
        ("shop.py:greet", "@given.json", ""),
        ("./shop.py:greet", "-", '{"name": "bob"}'),
    ],
)
def test_modules_and_arguments_come_in_several_ways(
    perdure: Perdure, folder: Path, target: str, arguments: str, input: str
) -> None:
    (folder / "given.json").write_text('{"name": "bob"}')
    assert answer(perdure("run", target, arguments, input=input)) == "hello bob"


def test_run_shows_each_step_on_a_terminal(folder: Path) -> None:
    """Whoever waits for a run wants to see it move, failed attempts included."""
    code, seen = on_a_terminal(folder, "run", "shop:stumbles", "--id", "s-1")
    assert code == 0
    assert "▶ s-1  stumbles {}" in seen
    assert "! stumble  ConnectionError: no route  (attempt 1, again in 10 ms)" in seen
    assert re.search(r"✓ stumble {2}→ 7 {2}\(\d+ ms, 2 attempts\)", seen)
    assert "✓ completed" in seen
    assert seen.rstrip().endswith("7")


def test_the_same_id_again_goes_on_with_the_run(perdure: Perdure, folder: Path) -> None:
    """It is the promise of the product: the step before the interruption is remembered, not run."""
    waits_for_approval(perdure, folder, "o-1")
    assert answer(perdure("signal", "o-1", "approved", "true"))["signal"] == "approved"

    code, seen = on_a_terminal(folder, "run", "shop:checkout", '["o-1"]', "--id", "o-1")

    assert code == 0
    assert re.search(r'✓ reserve {2}→ "hold-o-1" {2}\(\d+ ms\) {2}remembered', seen)
    assert re.search(r"✉ signal approved {2}← true\n", seen)
    assert (folder / "trace.log").read_text() == "reserve\n"
    assert answer(perdure("run", "shop:checkout", '["o-1"]', "--id", "o-1")) == {"hold": "hold-o-1", "ok": True}


def test_a_run_in_memory_that_takes_too_long_does_not_claim_to_be_kept(perdure: Perdure) -> None:
    done = perdure("run", "shop:checkout", '["o-2"]', "--timeout", "0.1", "--url", "sqlite://")
    assert done.returncode == 2
    assert done.stderr == (
        "still open after 0.1 s; the run was in memory only and is gone; --url names a file to keep runs\n"
    )


def test_a_run_that_takes_too_long_exits_with_2_and_is_kept(perdure: Perdure) -> None:
    done = perdure("run", "shop:checkout", '["o-2"]', "--id", "o-2", "--timeout", "0.3")
    assert (done.returncode, done.stdout) == (2, "")
    assert "still open after 0.3 s; the run is kept on disk" in done.stderr
    assert """perdure run shop:checkout '["o-2"]' --id o-2""" in done.stderr
    assert answer(perdure("show", "o-2"))["status"] == "SUSPENDED"


def test_a_failed_run_exits_with_1_and_names_the_error(perdure: Perdure) -> None:
    done = perdure("run", "shop:declines", "--id", "d-1")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        "error: run 'd-1' failed: ValueError: the card [bold]was[/] declined; `perdure show d-1` tells where\n"
    )


def test_a_held_run_says_so_with_both_sides(perdure: Perdure, folder: Path) -> None:
    """Whoever is paged at night must see what the history says and where the code waits."""
    run_until(perdure, folder, "ActivityCompleted", "run", "trip:trip", '["rome"]', "--id", "t-1")
    assert perdure("signal", "t-1", "go").returncode == 0
    (folder / "trip.py").write_text(TRIP.replace("await book_train(to)", "await book_flight(to)"))

    done = perdure("run", "trip:trip", '["rome"]', "--id", "t-1")

    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("error: run 't-1' is held (mismatch) and cannot go on\n")
    code, seen = on_a_terminal(folder, "show", "t-1")
    assert code == 0
    for told in (done.stderr, seen):
        assert re.search(r"the history says +event 2 is ActivityCompleted at book_train", told)
        assert re.search(r"the code waits at +book_flight", told)
        assert re.search(r"what to do +bring back the code", told)
    assert "HELD (mismatch)" in seen
    assert answer(perdure("show", "t-1"))["held_report"]["code_waits_at"] == ["book_flight"]


def test_an_interrupted_run_says_how_to_go_on(folder: Path) -> None:
    process = subprocess.Popen(
        command("run", "shop:checkout", '["o-3"]', "--id", "o-3"),
        cwd=folder,
        env=environment(),
        stderr=subprocess.PIPE,
        text=True,
    )
    until(lambda: count_events(folder, "TimerFired") == 1)
    process.send_signal(signal.SIGINT)
    _, told = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "interrupted; the run is kept on disk" in told
    assert """perdure run shop:checkout '["o-3"]' --id o-3""" in told
    assert "Traceback" not in told


# Looking


def test_list_filters_and_pages(perdure: Perdure, folder: Path) -> None:
    for number in ("1", "2", "3"):
        answer(perdure("run", "shop:greet", f'["{number}"]', "--id", f"g-{number}"))
    perdure("run", "shop:declines", "--id", "d-1")

    first = answer(perdure("list", "--limit", "2", "--workflow", "greet"))
    rest = answer(perdure("list", "--limit", "2", "--workflow", "greet", "--after", first[-1]["run_id"]))
    failed = answer(perdure("list", "--status", "failed", "--status", "running"))

    assert [run["workflow_id"] for run in first] == ["g-3", "g-2"]
    assert [run["workflow_id"] for run in rest] == ["g-1"]
    assert [(run["workflow_id"], run["status"]) for run in failed] == [("d-1", "FAILED")]
    code, seen = on_a_terminal(folder, "list", "--limit", "3")
    assert code == 0
    assert re.search(r"d-1 +declines +FAILED +.* ago +\d+ ms +ValueError: the card \[bold\]was\[/\] declined", seen)
    assert re.search(r"g-3 +greet +COMPLETED", seen)
    assert f"more: perdure list --limit 3 --after {first[1]['run_id']}\n" in seen
    assert re.match(r"id +workflow +status +started +took +note\n", seen)
    assert " \n" not in seen


def test_show_tells_what_a_run_waits_for(perdure: Perdure, folder: Path) -> None:
    waits_for_approval(perdure, folder, "o-1")

    code, seen = on_a_terminal(folder, "show", "o-1")

    assert code == 0
    assert re.search(r"id +o-1\n", seen)
    assert re.search(r"workflow +checkout\n", seen)
    assert re.search(r"status +SUSPENDED\n", seen)
    assert re.search(r'input +\{"order":"o-1"\}\n', seen)
    assert re.search(r"waits for +signal approved\n", seen)
    shown = answer(perdure("show", "o-1"))
    assert shown["waiting_for"] == [{"kind": "signal", "place": "signal(approved)", "name": "approved"}]
    assert answer(perdure("show", shown["run_id"]))["workflow_id"] == "o-1"


def test_show_tells_where_a_run_failed(perdure: Perdure, folder: Path) -> None:
    perdure("run", "shop:declines", "--id", "d-1")
    code, seen = on_a_terminal(folder, "show", "d-1")
    assert code == 0
    assert re.search(r"error +ValueError: the card \[bold\]was\[/\] declined\n", seen)
    assert re.search(r'File ".*shop.py", line \d+, in declines', seen)
    assert re.search(r'in the activity refuse:\n.*File ".*shop.py", line \d+, in refuse', seen, re.DOTALL)
    assert "perdure/worker" not in seen


def test_events_are_the_history_in_order(perdure: Perdure, folder: Path) -> None:
    answer(perdure("run", "shop:stumbles", "--id", "s-1"))
    history = answer(perdure("events", "s-1"))
    assert [(event["seq"], event["kind"]) for event in history] == [
        (1, "RunStarted"),
        (2, "ActivityCompleted"),
        (3, "RunCompleted"),
    ]
    assert history[1]["body"]["result"] == 7
    code, seen = on_a_terminal(folder, "events", "s-1")
    assert code == 0
    assert re.search(r"2 +\d\d:\d\d:\d\d .*✓ stumble +→ 7 {2}\(.*2 attempts\)\n", seen)
    assert len(re.findall(r"\d{4}-\d\d-\d\d", seen)) == 1


@pytest.mark.parametrize("columns", ["60", "140"])
def test_events_show_what_activities_were_given(perdure: Perdure, folder: Path, columns: str) -> None:
    """A narrow terminal wraps the last column only; a place is named where the activity's name is not enough."""
    run_until(perdure, folder, "ActivityCompleted", "run", "shop:waits_a_day", '["o-1"]', "--id", "o-1", count=2)

    code, seen = on_a_terminal(folder, "events", "o-1", COLUMNS=columns)

    assert code == 0
    assert max(len(line) for line in seen.splitlines()) <= int(columns)
    assert " \n" not in seen
    told = " ".join(seen.split())
    assert re.search(r'✓ reserve {"order":"o-1"} → "hold-o-1" \(\d+ ms\) 3 ', told)
    assert re.search(r'✓ reserve {"order":"o-1"} → "hold-o-1" \(\d+ ms\) at reserve#2$', told)


def test_a_limited_wait_reads_as_one(perdure: Perdure, folder: Path) -> None:
    run_until(perdure, folder, "ActivityCompleted", "run", "shop:waits_a_day", '["o-1"]', "--id", "o-1", count=2)
    _, listed = on_a_terminal(folder, "list")
    _, shown = on_a_terminal(folder, "show", "o-1")
    assert "signal approved; timer due in 24 h\n" in listed
    assert re.search(r"waits for +signal approved\n +timer due \S+ \S+ \(in 24 h\)\n", shown)


def test_show_tells_every_error_of_a_group(perdure: Perdure, folder: Path) -> None:
    """A task group's own text names no cause; its parts do."""
    perdure("run", "shop:groups", "--id", "g-1")
    code, seen = on_a_terminal(folder, "show", "g-1")
    assert code == 0
    assert re.search(r"^  \+ Exception Group Traceback .*^    \| ValueError: the card", seen, re.DOTALL | re.MULTILINE)
    assert re.search(r'in the activity refuse:\n.*File ".*shop.py", line \d+, in refuse', seen, re.DOTALL)
    assert "perdure/worker" not in seen


def test_hints_name_the_database_that_was_typed(perdure: Perdure, folder: Path) -> None:
    """A hint is there to be copied; without the URL it would speak of another database."""
    url = ("--url", "sqlite:///my shop.db")
    for id in ("d-1", "d-2"):
        failed = perdure("run", "shop:declines", "--id", id, *url)
    _, listed = on_a_terminal(folder, "list", "--limit", "1", "--status", "failed", "--workflow", "declines", *url)
    _, shown = on_a_terminal(folder, "show", "d-1", *url)
    _, without = on_a_terminal(folder, "show", "d-1", PERDURE_URL=url[1])
    late = perdure("run", "shop:checkout", '["o-1"]', "--id", "o-1", "--timeout", "0.3", *url)
    _, followed = on_a_terminal(folder, "run", "shop:checkout", '["o-1"]', "--id", "o-1", "--timeout", "1", *url)

    assert "`perdure show d-2 --url 'sqlite:///my shop.db'` tells where\n" in failed.stderr
    more = (
        r"more: perdure list --status failed --workflow declines --limit 1 --after \S+ --url 'sqlite:///my shop.db'\n"
    )
    assert re.search(more, listed)
    assert "every step: perdure events d-1 --url 'sqlite:///my shop.db'\n" in shown
    assert "every step: perdure events d-1\n" in without
    assert "--id o-1 --url 'sqlite:///my shop.db'\n" in late.stderr
    assert "send it: perdure signal o-1 approved PAYLOAD --url 'sqlite:///my shop.db'" in followed
    assert "`perdure list --url 'sqlite:///my shop.db'` shows the runs" in perdure("show", "nope", *url).stderr


def test_a_signal_that_nobody_waits_for_is_sent_with_a_warning(perdure: Perdure, folder: Path) -> None:
    """Most often its name was mistyped."""
    waits_for_approval(perdure, folder, "o-1")
    done = perdure("signal", "o-1", "aproved", "true")
    assert (done.returncode, json.loads(done.stdout)["signal"]) == (0, "aproved")
    assert done.stderr == 'warning: the run waits for: approved; "aproved" is kept until it is received\n'
    answer(perdure("signal", "o-1", "approved", "true"))


def test_the_url_comes_from_the_flag_then_the_environment(perdure: Perdure, folder: Path) -> None:
    answer(perdure("run", "shop:greet", '["a"]', PERDURE_URL="sqlite:///from-environment.db"))
    answer(perdure("run", "shop:greet", '["a"]', "--url", "sqlite:///flag.db", PERDURE_URL="sqlite:///other.db"))
    assert sorted(path.name for path in folder.glob("*.db")) == ["flag.db", "from-environment.db"]


def test_output_may_be_cut_off(folder: Path, perdure: Perdure) -> None:
    """`perdure events ID | head` is no failure."""
    answer(perdure("run", "shop:greet", '["a"]', "--id", "g-1"))
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        command("events", "g-1"), cwd=folder, env=environment(), stdout=writer, stderr=subprocess.PIPE, check=False
    )
    os.close(writer)
    assert done.stderr == b""


# Working


@pytest.fixture
def worker(folder: Path) -> Iterator["subprocess.Popen[str]"]:
    """A worker of shop.py that is ready; killed at the end, if it is still there."""
    process = subprocess.Popen(
        command("worker", "shop.py"),
        cwd=folder,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert process.stdout is not None
    head = [process.stdout.readline() for _ in range(3)]
    assert head[0] == f"worker {process.pid} is ready on {folder / 'perdure.db'}; Ctrl-C stops it\n"
    assert head[1].split() == [
        "workflows",
        "checkout,",
        "declines,",
        "drags,",
        "greet,",
        "groups,",
        "stumbles,",
        "waits_a_day",
    ]
    assert head[2].split() == ["activities", "drag,", "refuse,", "reserve,", "stumble"]
    yield process
    process.kill()
    process.communicate()


def until(is_so: Callable[[], bool]) -> None:
    """Wait for a condition; fail when it takes too long."""
    deadline = time.monotonic() + 20
    while not is_so():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.02)


def test_a_worker_finishes_what_is_under_way_when_it_is_told_to_stop(
    folder: Path, worker: "subprocess.Popen[str]"
) -> None:
    """A deploy sends SIGTERM; it must not make activities run twice."""
    start = subprocess.Popen(
        [sys.executable, "-c", STARTS_DRAGS], cwd=folder, env=environment(), stderr=subprocess.PIPE, text=True
    )
    assert start.communicate(timeout=30)[1] == ""
    trace = folder / "trace.log"
    until(lambda: trace.exists() and "drag begins" in trace.read_text())

    worker.send_signal(signal.SIGTERM)
    assert worker.stdout is not None
    assert worker.stdout.readline().startswith("stopping: activities under way may finish")
    (folder / "let-go").touch()

    assert worker.wait(20) == 0
    assert worker.stdout.read() == "stopped\n"
    assert trace.read_text() == "drag begins\ndrag ends\n"
    assert count_events(folder, "ActivityCompleted") == 1


STARTS_DRAGS = """
import asyncio, shop
from perdure import Perdure

async def main():
    async with Perdure("sqlite:///perdure.db", worker=False) as app:
        await app.start(shop.drags)

asyncio.run(main())
"""


def test_a_second_signal_stops_a_worker_at_once(folder: Path, worker: "subprocess.Popen[str]") -> None:
    subprocess.run([sys.executable, "-c", STARTS_DRAGS], cwd=folder, env=environment(), check=True)
    until(lambda: (folder / "trace.log").exists())
    worker.send_signal(signal.SIGTERM)
    assert worker.stdout is not None
    assert worker.stdout.readline().startswith("stopping")
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(5) == -signal.SIGTERM


# Mistakes

MISTAKES: list[tuple[str, int, str]] = [
    # what is typed, the exit code, what is said
    ("run shop", 64, "shop names no workflow; write shop:checkout (workflows in shop: checkout, declines, drags"),
    ("run shop:chekout", 64, "there is no 'chekout' in shop (workflows in shop: checkout, declines, drags, greet"),
    ("run shop:reserve", 64, "shop:reserve is an activity, not a workflow (workflows in shop: checkout"),
    ("run shop:plain", 64, "shop:plain is a plain function without @workflow, not a workflow"),
    ("run shop:os", 64, "shop:os is of type module, not a workflow"),
    ("run shopp:greet", 64, "no module named 'shopp' can be imported from"),
    ("run shop.greet", 64, "a workflow is named after a colon: shop:greet"),
    ("run ./shop:greet", 64, "the file 'shop' is not there; write shop.py"),
    ("run nope.py:greet", 64, "the file 'nope.py' is not there; name a .py file or an importable module"),
    ("run :greet", 64, "no module is named; write MODULE:WORKFLOW"),
    ("run empty.py:greet", 64, "there is no 'greet' in empty.py (workflows in empty.py: none; decorate one"),
    ("run broken:greet", 1, "importing broken failed: SyntaxError: "),
    ("run raises:greet", 1, "importing raises failed: ZeroDivisionError: division by zero (at "),
    ("run needs:greet", 1, "importing needs failed: ModuleNotFoundError: No module named 'not_installed' (at "),
    ("run twice:greet", 1, "importing twice failed: DuplicateName: the workflow name 'greet' is taken by shop.greet"),
    ("run no_async.py:greet", 1, "BadOption: the workflow greet is a plain def; write `async def greet` (at "),
    ("run shop:greet {ann", 64, "ARGUMENTS is not JSON ({ann): object keys must be strings (byte 1); for example: "),
    ("run shop:greet @nope.json", 64, "ARGUMENTS cannot be read from the file 'nope.json': No such file or directory"),
    ("run shop:greet -", 64, "ARGUMENTS is not JSON (read from standard input): it is empty; for example: "),
    ("run shop:greet", 64, "greet: missing a required argument: 'name'; it takes (name: str, times: int = 1) -> str"),
    ('run shop:greet {"nme":1}', 64, "greet: it has no parameter nme"),
    ("run shop:greet [1]", 64, "greet, argument 'name': Expected `str`, got `int`"),
    ("run shop:greet 7", 64, "greet: give the arguments as a JSON object by name or an array in order"),
    ('run shop:greet ["a"] --url mysql://x', 64, "the URL 'mysql://x' names no store; use sqlite:///file.db"),
    ('run shop:greet ["a"] --url sqlite:///no/x.db', 1, "the folder 'no' does not exist; create it first"),
    ('run shop:greet ["b"] --id taken', 1, """id 'taken' is taken by greet({"name":"a"}) (COMPLETED), wanted for"""),
    ("run", 64, "Missing argument 'MODULE:WORKFLOW'; see `perdure run --help`"),
    ("run shop:greet --nope", 64, "No such option: --nope"),
    ("bogus", 64, "No such command 'bogus'; see `perdure --help`"),
    ("lst", 64, "No such command 'lst'. Did you mean 'list'? See `perdure --help`"),
    ("list --status nope", 64, "Invalid value for '--status': 'nope' is not one of 'pending', 'running'"),
    ("list --limit 0", 64, "Invalid value for '--limit'"),
    ("list --url sqlite:///nope.db", 1, "there is no database 'nope.db'; name another with --url or PERDURE_URL"),
    ("list --url sqlite://", 64, "sqlite:// is the memory of one process, no other can see it; name a file"),
    ("list --url sqlite:///shop.py", 1, "sqlite:///shop.py: the file is not a SQLite database"),
    ("show nope", 1, "no run 'nope' in namespace 'main'; `perdure list` shows the runs there are"),
    ("events nope", 1, "no run 'nope' in namespace 'main'"),
    ("signal nope approved", 1, "no run 'nope' in namespace 'main'"),
    ("signal taken", 64, "Missing argument 'NAME'; see `perdure signal --help`"),
    ("signal taken approved yes", 64, "PAYLOAD is not JSON (yes): invalid character (byte 0); for example: true, 42"),
    ("signal taken approved", 1, "has ended (COMPLETED) and takes no more messages; nothing was sent"),
    ("worker", 64, "Missing argument 'MODULE...'; see `perdure worker --help`"),
    ("worker nope", 64, "no module named 'nope' can be imported from"),
    ("worker shop --url sqlite://", 64, "sqlite:// is the memory of one process, no other can see it"),
    ("worker empty.py", 64, "no workflow is in empty.py; decorate an `async def` with @workflow"),
]


@pytest.fixture(scope="module")
def messy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with broken modules and a database with one closed run."""
    folder = tmp_path_factory.mktemp("messy")
    (folder / "shop.py").write_text(SHOP)
    (folder / "empty.py").write_text("")
    (folder / "broken.py").write_text("def (:")
    (folder / "raises.py").write_text("\n1 / 0\n")
    (folder / "needs.py").write_text("import not_installed\n")
    (folder / "twice.py").write_text("import shop, perdure\n@perdure.workflow\nasync def greet(): ...\n")
    (folder / "no_async.py").write_text("import perdure\n@perdure.workflow\ndef greet(): ...\n")
    taken = command("run", "shop:greet", '["a"]', "--id", "taken")
    subprocess.run(taken, cwd=folder, env=environment(), check=True, capture_output=True)
    return folder


# Loads the command line once and forks a process for each mistake: starting Python takes longer than any of them.
TYPES_IN = """
import json, os, sys
import perdure.app
from perdure.cli import main
from perdure.cli.entry import outcome

# Typer and the engine load the rest of themselves when they are first used.
outcome(["list", "--limit", "0"])
answers = []
for typed in json.load(sys.stdin):
    if (pid := os.fork()) == 0:
        for number, name in ((0, os.devnull), (1, "said.out"), (2, "said.err")):
            os.dup2(os.open(name, os.O_RDWR | os.O_CREAT | os.O_TRUNC), number)
        sys.argv = ["perdure", *typed.split()]
        main()
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    answers.append((code, open("said.out").read(), open("said.err").read()))
json.dump(answers, sys.stdout)
"""

Answers = dict[str, tuple[int, str, str]]


@pytest.fixture(scope="module")
def answers(messy: Path) -> Answers:
    """How each of the mistakes is answered: exit code, standard output, standard error."""
    typed = [typed for typed, _, _ in MISTAKES]
    done = subprocess.run(
        [sys.executable, "-c", TYPES_IN],
        cwd=messy,
        env=environment(),
        input=json.dumps(typed),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return {line: (code, out, err) for line, (code, out, err) in zip(typed, json.loads(done.stdout), strict=True)}


@pytest.mark.parametrize(("typed", "code", "said"), MISTAKES, ids=[typed for typed, _, _ in MISTAKES])
def test_a_mistake_gets_one_clear_line(answers: Answers, typed: str, code: int, said: str) -> None:
    """No traceback: what happened, to which thing, what to do."""
    exit_code, out, err = answers[typed]
    assert (exit_code, out) == (code, ""), err
    assert err.startswith("error: ")
    assert said in err
    assert err.count("\n") == 1


def test_looking_into_a_database_of_somebody_else_leaves_it_alone(perdure: Perdure, folder: Path) -> None:
    """A wrong --url must not put our tables into the database of another program."""
    with closing(sqlite3.connect(folder / "other.db")) as db:
        db.execute("create table customers (name)")
        db.commit()
    before = (folder / "other.db").read_bytes()

    done = perdure("list", "--url", "sqlite:///other.db")

    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("error: 'other.db' is a database without runs of Perdure; name another with --url")
    assert (folder / "other.db").read_bytes() == before


@pytest.mark.usefixtures("answers")
def test_mistakes_leave_no_database_behind(messy: Path) -> None:
    """A command that only looks, or cannot start, must not create what it did not find."""
    assert [path.name for path in messy.glob("*.db")] == ["perdure.db"]


def test_help_names_every_command_and_the_exit_codes(perdure: Perdure) -> None:
    done = perdure()
    assert done.returncode == 0
    for name in ("run", "worker", "list", "show", "events", "signal"):
        assert re.search(rf"│ {name} +\w", done.stdout), name
    assert "Exit codes: 0 ok, 1 failed, 2 timed out, 64 wrong usage." in done.stdout


def test_help_does_not_load_the_engine() -> None:
    """A command line that is slow to say how it is used is not asked again."""
    look = "import sys; from perdure.cli.entry import outcome; outcome(['--help']); print('perdure.app' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, check=True)
    assert done.stdout.rstrip().endswith("False")
