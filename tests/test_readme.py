"""The README is true: its example runs word for word, and it stays short."""

import re
import subprocess
import sys
from pathlib import Path

README = (Path(__file__).parent.parent / "README.md").read_text()


def test_the_example_runs_word_for_word_and_again(tmp_path: Path) -> None:
    """The second time it finds the run done, and prints the same."""
    example = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    assert len(example) == 1
    (tmp_path / "shop.py").write_text(example[0])
    for _ in range(2):
        shown = subprocess.run(
            [sys.executable, "shop.py"], cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False
        )
        assert (shown.stdout, shown.stderr) == ("hold-o-17 receipt-o-17-4200\n", "")


def test_it_is_short_and_names_the_two_commands_and_six_promises() -> None:
    assert len(README.splitlines()) <= 150
    assert "make demo" in README
    assert "make test" in README
    assert len(re.findall(r"^\d\. \*\*", README, re.MULTILINE)) == 6
