"""Random programs replay the same: at every prefix of their histories, and on every Python.

`make programs` checks thousands of them, `make pythons` records and replays on each Python.
"""

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from perdure.worker.loop.generators import watch_generators
from perdure.worker.loop.loop import RunTask
from tests.programs.checks import check, replay
from tests.programs.drawing import abilities, drawn
from tests.programs.world import Differs

HISTORIES = sorted((Path(__file__).parents[1] / "histories").glob("*.jsonl"))
COUNT = 250
# Programs that no other check begins with.
FIRST = 100_000

# What a dying program leaves unawaited is its own business.
pytestmark = pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")


@pytest.fixture(autouse=True)
def _as_in_a_worker(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    caplog.set_level(logging.CRITICAL, "perdure.worker")
    unwatch = watch_generators()
    yield
    unwatch()


def test_random_programs_replay_at_every_prefix() -> None:
    """Same calls at the same places in the same order with the same arguments, and the same end."""
    assert check(range(FIRST, FIRST + COUNT)) > 5 * COUNT


def test_a_difference_is_found_and_says_how_to_repeat_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A loop whose tasks hash by their addresses is one that goes wrong."""
    monkeypatch.setattr(RunTask, "__hash__", object.__hash__)
    with pytest.raises(Differs, match=r"repeat it with: .* -m tests.programs check --seed 1"):
        check(range(FIRST, FIRST + COUNT))


def test_every_ability_is_drawn() -> None:
    seen: set[str] = set()

    def look(part: object) -> None:
        match part:
            case {"do": str(name), **rest}:
                seen.add(name)
                for each in rest.values():
                    look(each)
            case list():
                for each in part:
                    look(each)

    for seed in range(FIRST, FIRST + COUNT):
        look(drawn(seed))
    assert seen == set(abilities)


@pytest.mark.parametrize("path", HISTORIES, ids=lambda path: path.stem)
def test_histories_of_every_python_replay_here(path: Path) -> None:
    """They were recorded once and are kept: a change that breaks them breaks runs that are under way."""
    assert replay([path]) == []


def test_there_are_histories_of_every_python_and_of_the_oldest_patch_level() -> None:
    """Debian's 3.11.2 has an asyncio, and an `except*`, that later ones of 3.11 have not."""
    assert [path.stem for path in HISTORIES] == ["python-3.11.2", "python-3.11", "python-3.12", "python-3.13"]
