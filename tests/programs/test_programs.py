"""Random programs replay the same: at every prefix of their histories, and on every Python.

`make programs` checks thousands of them, `make pythons` records and replays on each Python.
"""

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from perdure.kernel.events import CLOSINGS, FACTS, ResultGiven, RunStarted
from perdure.worker.loop.generators import watch_generators
from perdure.worker.loop.loop import RunTask
from tests.programs import histories
from tests.programs.checks import check, replay
from tests.programs.drawing import abilities, drawn, used
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
    seen: set[str] = set().union(*(used(drawn(seed)) for seed in range(FIRST, FIRST + COUNT)))
    assert seen == set(abilities)


@pytest.mark.parametrize("path", HISTORIES, ids=lambda path: path.stem)
def test_histories_of_every_python_replay_here(path: Path) -> None:
    """They were recorded once and are kept: a change that breaks them breaks runs that are under way."""
    assert replay([path]) == []


def test_the_histories_hold_every_kind_of_event() -> None:
    """A kind that none of them holds could be changed, and nobody would see that old runs are lost."""
    kept = [recording for path in HISTORIES for recording in histories.read(path)]
    found = {event.kind for recording in kept for event in recording.events}
    # A result that was given by hand is one of a fork, which no program makes.
    assert found >= {kind for kind, fact in FACTS.items() if fact not in {RunStarted, ResultGiven, *CLOSINGS}}
    assert any(event.place.startswith("undo") for recording in kept for event in recording.events)
    assert set().union(*(used(recording.program) for recording in kept)) >= {"publish", "show", "step_at_most_once"}


def test_there_are_histories_of_every_python_and_of_the_oldest_patch_level() -> None:
    """Debian's 3.11.2 has an asyncio, and an `except*`, that later ones of 3.11 have not."""
    assert [path.stem for path in HISTORIES] == ["python-3.11.2", "python-3.11", "python-3.12", "python-3.13"]
