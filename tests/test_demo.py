"""The demo does what it says, and fails when what it says is not so."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
DEMO = ROOT / "demo" / "run.py"

# The demo's own proof, over an effects file in which the recorded step `reserve` ran twice.
FORGED = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from rich.console import Console
import run
demo = run.Demo(Path(sys.argv[2]), Console())
demo._story.workers = [1, 2]
demo._story.recorded_before_the_kill = {"reserve", "pack mug"}
lines = ["1 reserve o-17", "1 pack mug", "2 reserve o-17", "2 pack lamp", "2 pack desk", "2 pack sofa"]
demo._effects.write_text("\\n".join([*lines, "2 ship o-17", "2 bill o-17"]))
sys.exit(0 if demo._prove(run.EXPECTED) else 1)
"""


def names(text: str, pattern: str) -> list[str]:
    """The steps that a line of the demo's proof names; none if there is no such line."""
    found = re.search(pattern, text)
    return found[1].strip().split(", ") if found else []


def test_the_demo_kills_a_worker_and_proves_that_nothing_recorded_ran_twice() -> None:
    """It is the first thing a newcomer runs, on a terminal or not."""
    played = subprocess.run([sys.executable, str(DEMO)], capture_output=True, text=True, timeout=3000, check=False)
    assert played.returncode == 0, played.stdout + played.stderr
    killed = re.search(r"kill -9 (\d+): (\d) steps are on disk", played.stdout)
    assert killed is not None, played.stdout
    first = killed[1]
    second = re.findall(r"worker (\d+) starts", played.stdout)[1]
    assert first != second
    kept = names(played.stdout, r"on disk at the kill +ran once +(.+)")
    assert kept[:3] == ["reserve", "pack mug", "pack lamp"]
    assert int(killed[2]) == len(kept)
    # On a busy machine the demo may come so late that nothing is under way any more.
    lost = names(played.stdout, r"under way at the kill +ran twice +(.+)")
    assert {*kept, *lost} >= {"reserve", "pack mug", "pack lamp", "pack desk", "pack sofa"}
    for step, at_first, then in [(s, "ran", "↺ remembered") for s in kept] + [
        (s, "✗ killed", "ran again") for s in lost
    ]:
        title = {"reserve": "reserve the order"}.get(step, step.replace("pack", "pack the"))
        assert re.search(rf"worker {first}   {title} +(✓ )?{at_first}\n", played.stdout), step
        assert re.search(rf"worker {second}   {title} +(✓ )?{then}\n", played.stdout), step
    assert "activities run at least once" in played.stdout
    assert "4 boxes to 12 Mill Lane, track-o-17" in played.stdout
    assert "✓ No recorded step ran twice." in played.stdout
    assert played.stderr == ""


def test_ctrl_c_ends_the_demo_and_its_workers_without_a_traceback() -> None:
    """As at a terminal, where the workers get it too."""
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, str(DEMO)], start_new_session=True, **streams) as demo:  # type: ignore[call-overload]  # its streams
        begun = (re.search(r"worker (\d+) starts on it", line) for line in demo.stdout)
        worker = int(next(found[1] for found in begun if found))

        os.killpg(demo.pid, signal.SIGINT)

        assert demo.communicate(timeout=300)[1] == ""
    assert demo.returncode == 130
    with pytest.raises(ProcessLookupError):
        os.kill(worker, 0)


def test_the_demo_fails_loudly_when_a_recorded_step_ran_twice(tmp_path: Path) -> None:
    """A proof that cannot fail proves nothing."""
    command = [sys.executable, "-c", FORGED, str(DEMO.parent), str(tmp_path)]
    proof = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert proof.returncode == 1, proof.stderr
    assert "✗ The proof does not hold for: reserve" in proof.stdout
