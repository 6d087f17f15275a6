"""Activities on a queue, as the command line shows them: tasks, runs of their own that nobody has typed."""

import json
import sqlite3
from contextlib import closing

from tests.cli.shell import Shell, until

TASKS = ("list", "--workflow", "task:render")


def film_waits_for_its_task(shell: Shell, id: str) -> None:
    """A run whose task is on disk, on a queue that nobody works."""

    def is_there() -> bool:
        assert shell("run", "film:makes_film", '["dawn"]', "--id", id, "--wait", "0.2").code == 2
        return len(shell(*TASKS).json) == 1

    until(is_there)


def change(shell: Shell, statement: str) -> None:
    with closing(sqlite3.connect(shell.folder / "perdure.db")) as db, db:
        db.execute(statement)


def hold_tasks(shell: Shell) -> None:
    change(
        shell,
        "update runs set held = 'mismatch', status = 'SUSPENDED', wake_at = null where workflow like 'task:%'",
    )


def workflows(shell: Shell, *words: str) -> list[str]:
    return [run["workflow"] for run in shell("list", *words).json]


def test_a_held_task_is_listed_where_held_runs_are_asked_for_and_resumed_with_them(shell: Shell) -> None:
    """Doctor and workers count it among the held runs, and send whoever reads that to these commands."""
    film_waits_for_its_task(shell, "f-1")
    hold_tasks(shell)

    assert workflows(shell) == ["makes_film"]
    assert workflows(shell, "--status", "suspended") == ["makes_film"]
    for word in ("held", "mismatch"):
        assert workflows(shell, "--status", word) == ["task:render"]
    assert workflows(shell, "--status", "quarantine", "--status", "suspended") == ["makes_film"]
    assert [each["status"] for each in json.loads(shell("resume", "--all").out)] == ["PENDING"]
    assert workflows(shell, "--status", "held") == []


def test_a_task_that_nobody_takes_is_listed_where_it_is_asked_for(shell: Shell) -> None:
    """People look for what they have started; what doctor names is found by that name."""
    film_waits_for_its_task(shell, "f-1")
    assert workflows(shell, "--status", "pending") == []
    assert workflows(shell, "--status", "pending", "--workflow", "task:render") == ["task:render"]
    assert workflows(shell, "--status", "pending", "--parent", "f-1") == ["task:render"]
