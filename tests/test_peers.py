"""The comparison with other engines says what it found, and who did not take part."""

from pathlib import Path

import pytest

from bench.peers.__main__ import Comparison, markdown
from bench.peers.contenders import Dbos, NotFinished, Restate, Skipped, said


def test_the_table_of_peers_tells_the_middle_of_all_turns_and_who_did_not_finish() -> None:
    """A README is made of it: nobody may look faster than in most of the turns, or be left out without a word."""
    quick, slow = {"workflows_per_s": 1000.0}, {"workflows_per_s": 100.0}
    numbers = {"S1": {"Perdure, SQLite": [quick, slow, quick], "DBOS, SQLite": [slow]}}
    troubles = {"S1": {"DBOS, SQLite": ["too long", "too long"]}}
    found = Comparison("3", "Postgres 18", 7.0, "the command", False, numbers, troubles, {"Restate": "not here"})

    table = markdown(found).splitlines()

    assert table[0] == "| | Perdure, SQLite | DBOS, SQLite |"
    assert table[2] == "| S1: workflows of 5 steps | 1,000/s | not finished |"
    assert table[-1] == "Restate was skipped: not here."


@pytest.mark.parametrize("kind", [Dbos, Restate])
def test_an_engine_that_is_not_installed_is_skipped_with_a_word(
    kind: type[Dbos | Restate], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever wants the comparison must not need all of the others first."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Skipped, match="install"):
        kind("peer", uses_postgres=False).check()


def test_what_a_peer_says_counts_only_if_it_ends_well() -> None:
    """A number of somebody who failed afterwards is none."""
    assert said(["sh", "-c", 'echo "{\\"seconds\\": 1.5}"'], 1) == {"seconds": 1.5}
    with pytest.raises(NotFinished, match="out of luck"):
        said(["sh", "-c", 'echo "{\\"seconds\\": 1.5}"; echo out of luck >&2; exit 1'], 1)
