"""Activities on a queue, as the command line shows them: tasks, runs of their own that nobody has typed."""

import json
import re
import sqlite3
from contextlib import closing

from tests.cli.shell import Shell, until

TRAILER = """
from perdure import sleep, workflow
from gpu import render

@workflow
async def makes_trailer() -> str:
    await sleep(0.7)
    return await render("dusk")
"""
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
    resumed = shell("resume", "--all")
    assert [each["status"] for each in json.loads(resumed.out)] == ["PENDING"]
    assert "`perdure worker MODULE --queue gpu`" in resumed.err
    assert workflows(shell, "--status", "held") == []


def test_a_task_that_nobody_takes_is_listed_where_it_is_asked_for(shell: Shell) -> None:
    """People look for what they have started; what doctor names is found by that name."""
    film_waits_for_its_task(shell, "f-1")
    assert workflows(shell, "--status", "pending") == []
    assert workflows(shell, "--status", "pending", "--workflow", "task:render") == ["task:render"]
    assert workflows(shell, "--status", "pending", "--parent", "f-1") == ["task:render"]


def test_a_run_on_a_queue_that_nobody_works_is_told_with_that_queue(shell: Shell) -> None:
    """The command in the warning must help; one without the queue would start a worker that never takes the run."""
    words = ("start", "shop:greet", '["ann"]', "--queue", "emial")
    done = shell(*words)
    assert "the run is on the queue emial, which no living worker works; " in done.err
    assert "`perdure worker shop --queue emial`" in done.err
    with shell.at_work():
        done = shell(*words)
        assert "the queue emial, which no living worker works (those alive work default, slow)" in done.err
        assert shell("start", "shop:greet", '["ann"]', "--queue", "slow").err == ""


def test_whoever_waits_is_told_of_the_queue_that_nobody_works(shell: Shell) -> None:
    """A run that waits for its activity looks as if it worked; nothing else says why it never ends."""
    assert shell("start", "shop:greet", '["ann"]', "--id", "g-1", "--queue", "emial").code == 0
    seen = shell.at_terminal("wait", "g-1", "--timeout", "0.5")[1]
    assert "`perdure worker MODULE --queue emial`" in seen
    assert "waits for a worker of the queue emial" in seen
    film_waits_for_its_task(shell, "f-1")
    waited = shell("wait", "f-1", "--timeout", "0.1")
    assert "the run waits for an activity on the queue gpu, which no living worker works; " in waited.err
    assert "`perdure worker MODULE --queue gpu`" in waited.err


def test_whoever_runs_is_told_of_the_queue_that_nobody_works(shell: Shell) -> None:
    """The command works the queue default itself, and gets to an activity of another one only after a while."""
    done = shell("run", "film:makes_film", '["dawn"]', "--id", "f-1", "--wait", "2s")
    assert done.code == 2
    assert done.err.splitlines()[0] == (
        "warning: the run waits for an activity on the queue gpu, which no living worker works; "
        "start one with `perdure worker film --queue gpu`"
    )
    assert done.err.count("warning") == 1
    memory = shell("run", "film:makes_film", '["dawn"]', "--wait", "0.5", "--url", "sqlite://")
    assert "warning" not in memory.err


def test_whoever_waits_is_told_of_a_queue_that_the_run_gets_to_later(shell: Shell) -> None:
    """At its beginning the run needs nothing but the worker it has."""
    (shell.folder / "trailer.py").write_text(TRAILER)
    with shell.at_work("trailer"):
        assert shell("start", "trailer:makes_trailer", "--id", "t-1").err == ""
        done = shell("wait", "t-1", "--timeout", "6s")
    assert done.code == 2
    assert done.err.count("warning: the run waits for an activity on the queue gpu") == 1


def test_show_says_that_nobody_works_what_a_run_waits_for(shell: Shell) -> None:
    """Whoever looks at a run wants to know what to do about it."""
    film_waits_for_its_task(shell, "f-1")
    told = "the run waits for an activity on the queue gpu, which no living worker works; start one with"
    seen = " ".join(shell.at_terminal("show", "f-1")[1].split())
    assert f"warning {told} `perdure worker MODULE --queue gpu`" in seen
    assert seen.count("warning") == 1
    task = " ".join(shell.at_terminal("show", shell(*TASKS).json[0]["workflow_id"])[1].split())
    assert "warning the run is on the queue gpu, which no living worker works; start one with" in task


def test_a_task_shows_what_its_activity_is_given(shell: Shell) -> None:
    """How it is to be tried stands beside that in the database; it is not what anybody has typed."""
    film_waits_for_its_task(shell, "f-1")
    id = shell(*TASKS).json[0]["workflow_id"]
    assert shell("show", id).json["input"] == {"scene": "dawn"}
    assert re.search(r'input +\{"scene":"dawn"\}\n', shell.at_terminal("show", id)[1])
    assert 'started  task:render {"scene":"dawn"}' in shell.at_terminal("events", id)[1]


def test_doctor_names_what_nobody_takes_and_the_queues_of_workers(shell: Shell) -> None:
    """`start one that has the code` helps nobody who has five of them."""
    film_waits_for_its_task(shell, "f-1")
    for _ in range(2):
        assert shell("start", "shop:greet", '["ann"]', "--queue", "emial").code == 0
    change(shell, "update runs set updated_at = updated_at - 60000 where wake_at is not null")
    with shell.at_work():
        found = {each["check"]: each for each in json.loads(shell("doctor").out)["checks"]}
    assert "(2 of greet on the queue emial, 1 of task:render on the queue gpu)" in found["runs"]["found"]
    assert "`perdure worker MODULE --queue emial --queue gpu`" in found["runs"]["remedy"]
    assert "queues default and slow, 0 runs" in found["workers"]["found"]
