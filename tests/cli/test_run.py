"""`perdure run`: start a run or go on with one, and work it here."""

import re
import signal
import subprocess
from pathlib import Path

import pytest

from tests.cli.modules import TRIP
from tests.cli.shell import Shell, command, count_events, environment, until


def test_the_result_is_json_when_piped(shell: Shell) -> None:
    assert shell("run", "shop:greet", '{"name": "ann", "times": 2}').json == "hello ann ann"


@pytest.mark.parametrize(
    ("target", "arguments", "input"),
    [
        ("shop:greet", '["bob"]', ""),
        ("shop.py:greet", "@given.json", ""),
        ("./shop.py:greet", "-", '{"name": "bob"}'),
    ],
)
def test_modules_and_arguments_come_in_several_ways(shell: Shell, target: str, arguments: str, input: str) -> None:
    (shell.folder / "given.json").write_text('{"name": "bob"}')
    assert shell("run", target, arguments, input=input).json == "hello bob"


def test_each_step_is_shown_on_a_terminal(shell: Shell) -> None:
    """Whoever waits for a run wants to see it move, failed attempts included."""
    code, seen = shell.at_terminal("run", "shop:stumbles", "--id", "s-1")
    assert code == 0
    assert "▶ s-1  stumbles {}" in seen
    assert "! stumble  ConnectionError: no route  (attempt 1, again in 10 ms)" in seen
    assert re.search(r"✓ stumble {2}→ 7 {2}\(\d+ ms, 2 attempts\)", seen)
    assert "✓ completed" in seen
    assert seen.rstrip().endswith("7")


def test_the_same_id_again_goes_on_with_the_run(shell: Shell) -> None:
    """It is the promise of the product: the step before the interruption is remembered, not run."""
    shell.waits_for_approval("o-1")
    assert shell("signal", "o-1", "approved", "true").json["signal"] == "approved"

    code, seen = shell.at_terminal("run", "shop:checkout", '["o-1"]', "--id", "o-1")

    assert code == 0
    assert re.search(r'✓ reserve {2}→ "hold-o-1" {2}\(\d+ ms\) {2}remembered', seen)
    assert re.search(r"✉ signal approved {2}← true\n", seen)
    assert (shell.folder / "trace.log").read_text() == "reserve\n"
    assert shell("run", "shop:checkout", '["o-1"]', "--id", "o-1").json == {"hold": "hold-o-1", "ok": True}


def test_a_run_in_memory_that_takes_too_long_does_not_claim_to_be_kept(shell: Shell) -> None:
    done = shell("run", "shop:checkout", '["o-2"]', "--wait", "0.1", "--url", "sqlite://")
    assert done.code == 2
    assert done.err == (
        "still open after 0.1 s; the run was in memory only and is gone; --url names a file to keep runs\n"
    )


def test_a_run_that_takes_too_long_exits_with_2_and_is_kept(shell: Shell) -> None:
    done = shell("run", "shop:checkout", '["o-2"]', "--id", "o-2", "--wait", "300ms")
    assert (done.code, done.out) == (2, "")
    assert "still open after 0.3 s; the run is kept on disk" in done.err
    assert """perdure run shop:checkout '["o-2"]' --id o-2""" in done.err
    assert shell("show", "o-2").json["status"] == "SUSPENDED"


def test_a_failed_run_exits_with_1_and_names_the_error(shell: Shell) -> None:
    done = shell("run", "shop:declines", "--id", "d-1")
    assert (done.code, done.out) == (1, "")
    assert done.err == (
        "error: run 'd-1' failed: ValueError: the card [bold]was[/] declined; `perdure show d-1` tells where\n"
    )


def test_a_held_run_says_so_with_both_sides(shell: Shell) -> None:
    """Whoever is paged at night must see what the history says and where the code waits."""
    shell.run_until("ActivityCompleted", "run", "trip:trip", '["rome"]', "--id", "t-1")
    assert shell("signal", "t-1", "go").code == 0
    (shell.folder / "trip.py").write_text(TRIP.replace("await book_train(to)", "await book_flight(to)"))

    done = shell("run", "trip:trip", '["rome"]', "--id", "t-1")

    assert (done.code, done.out) == (1, "")
    assert done.err.startswith("error: run 't-1' is held (mismatch) and cannot go on\n")
    code, seen = shell.at_terminal("show", "t-1")
    assert code == 0
    for told in (done.err, seen):
        assert re.search(r"the history says +event 2 is ActivityCompleted at book_train", told)
        assert re.search(r"the code waits at +book_flight", told)
        assert re.search(r"what to do +bring back the code", told)
    assert "HELD (mismatch)" in seen
    assert shell("show", "t-1").json["held_report"]["code_waits_at"] == ["book_flight"]
    waited = shell("wait", "t-1")
    assert (waited.code, waited.out) == (1, "")
    assert "error: run 't-1' is held (mismatch) and cannot go on\n" in waited.err


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
    _, told = process.communicate(timeout=120)
    assert process.returncode == 130
    assert "interrupted; the run is kept on disk" in told
    assert """perdure run shop:checkout '["o-3"]' --id o-3""" in told
    assert "Traceback" not in told
