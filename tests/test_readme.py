"""The README is true: its example runs word for word, and it stays short."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

README = (Path(__file__).parent.parent / "README.md").read_text()


def example() -> str:
    (found,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    return str(found)


def test_the_example_runs_word_for_word_and_again(tmp_path: Path) -> None:
    """The second time it finds the run done, and prints the same."""
    (tmp_path / "shop.py").write_text(example())
    for _ in range(2):
        shown = subprocess.run(
            [sys.executable, "shop.py"], cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False
        )
        assert (shown.stdout, shown.stderr) == ("hold-o-17 receipt-o-17-4200\n", "")


def test_ctrl_c_in_the_example_shows_nothing_of_ours(tmp_path: Path) -> None:
    """Whoever stops a program that waits sees which line of theirs it was, as Python tells it, and not our insides."""
    approval = 'await run.signal(approved, True, id="approval")'
    (tmp_path / "shop.py").write_text(example().replace(approval, 'print("waits", flush=True)'))
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "shop.py"], cwd=tmp_path, **streams) as shop:  # type: ignore[call-overload]  # its streams
        assert shop.stdout.readline() == "waits\n"
        shop.send_signal(signal.SIGINT)
        _, shown = shop.communicate(timeout=300)

    assert shown.endswith("\nKeyboardInterrupt\n")
    assert "shop.py" in shown
    assert [line for line in shown.splitlines() if f"perdure{os.sep}" in line] == []
    assert "never retrieved" not in shown
    assert shop.returncode == -signal.SIGINT


def test_it_is_short_and_names_the_two_commands_and_six_promises() -> None:
    assert len(README.splitlines()) <= 150
    assert "make demo" in README
    assert "make test" in README
    assert len(re.findall(r"^\d\. \*\*", README, re.MULTILINE)) == 6
