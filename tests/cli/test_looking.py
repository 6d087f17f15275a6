"""`perdure list`, `show` and `events`: runs as they stand, and what they did."""

import asyncio
import json
import os
import re
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from perdure import sleep, workflow
from perdure.cli.commands.list import as_filter, is_news
from perdure.kernel.filters import parse
from perdure.testing import Environment
from perdure.views.changes import Change
from perdure.views.run import RunInfo
from tests.cli.shell import Shell, until


def test_list_filters_and_pages(shell: Shell) -> None:
    for number in ("1", "2", "3"):
        assert shell("run", "shop:greet", f'["{number}"]', "--id", f"g-{number}").code == 0
    shell("run", "shop:declines", "--id", "d-1")

    first = shell("list", "--limit", "2", "--workflow", "greet").json
    rest = shell("list", "--limit", "2", "--workflow", "greet", "--after", first[-1]["run_id"]).json
    failed = shell("list", "--status", "failed", "--status", "running").json

    assert [run["workflow_id"] for run in first] == ["g-3", "g-2"]
    assert [run["workflow_id"] for run in rest] == ["g-1"]
    assert [(run["workflow_id"], run["status"]) for run in failed] == [("d-1", "FAILED")]
    code, seen = shell.at_terminal("list", "--limit", "3")
    assert code == 0
    assert re.search(r"d-1 +declines +FAILED +.* ago +\d+ ms +ValueError: the card \[bold\]was\[/\] declined", seen)
    assert re.search(r"g-3 +greet +COMPLETED", seen)
    assert f"more: perdure list --limit 3 --after {first[1]['run_id']}\n" in seen
    assert re.match(r"id +workflow +status +started +took +note\n", seen)
    assert " \n" not in seen


def test_show_tells_what_a_run_waits_for(shell: Shell) -> None:
    shell.waits_for_approval("o-1")

    code, seen = shell.at_terminal("show", "o-1")

    assert code == 0
    assert re.search(r"id +o-1\n", seen)
    assert re.search(r"workflow +checkout\n", seen)
    assert re.search(r"status +SUSPENDED\n", seen)
    assert re.search(r'input +\{"order":"o-1"\}\n', seen)
    assert re.search(r"waits for +signal approved\n", seen)
    shown = shell("show", "o-1").json
    waits = {"kind": "signal", "place": "signal(approved)", "name": "approved", "accepts": {"type": "boolean"}}
    assert shown["waiting_for"] == [waits]
    assert shell("show", shown["run_id"]).json["workflow_id"] == "o-1"


def test_show_tells_where_a_run_failed(shell: Shell) -> None:
    shell("run", "shop:declines", "--id", "d-1")
    code, seen = shell.at_terminal("show", "d-1")
    assert code == 0
    assert re.search(r"error +ValueError: the card \[bold\]was\[/\] declined\n", seen)
    assert re.search(r'File ".*shop.py", line \d+, in declines', seen)
    assert re.search(r'in the activity refuse:\n.*File ".*shop.py", line \d+, in refuse', seen, re.DOTALL)
    assert "perdure/worker" not in seen


def test_events_are_the_history_in_order(shell: Shell) -> None:
    assert shell("run", "shop:stumbles", "--id", "s-1").json == 7
    history = shell("events", "s-1").json
    assert [(event["seq"], event["kind"]) for event in history] == [
        (1, "RunStarted"),
        (2, "ActivityCompleted"),
        (3, "RunCompleted"),
    ]
    assert history[1]["body"]["result"] == 7
    code, seen = shell.at_terminal("events", "s-1")
    assert code == 0
    assert re.search(r"2 +\d\d:\d\d:\d\d .*✓ stumble +→ 7 {2}\(.*2 attempts\)\n", seen)
    assert len(re.findall(r"\d{4}-\d\d-\d\d", seen)) == 1


@pytest.mark.parametrize("columns", ["60", "140"])
def test_events_show_what_activities_were_given(shell: Shell, columns: str) -> None:
    """A narrow terminal wraps the last column only; a place is named where the activity's name is not enough."""
    shell.run_until("ActivityCompleted", "run", "shop:waits_a_day", '["o-1"]', "--id", "o-1", count=2)

    code, seen = shell.at_terminal("events", "o-1", COLUMNS=columns)

    assert code == 0
    assert max(len(line) for line in seen.splitlines()) <= int(columns)
    assert " \n" not in seen
    told = " ".join(seen.split())
    assert re.search(r'✓ reserve {"order":"o-1"} → "hold-o-1" \(\d+ ms\) 3 ', told)
    assert re.search(r'✓ reserve {"order":"o-1"} → "hold-o-1" \(\d+ ms\) at reserve#2$', told)


def test_a_limited_wait_reads_as_one(shell: Shell) -> None:
    shell.run_until("ActivityCompleted", "run", "shop:waits_a_day", '["o-1"]', "--id", "o-1", count=2)
    _, listed = shell.at_terminal("list")
    _, shown = shell.at_terminal("show", "o-1")
    assert "signal approved; timer due in 24 h\n" in listed
    assert re.search(r"waits for +signal approved\n +timer due \S+ \S+ \S+ \(in 24 h\)\n", shown)


def test_show_tells_every_error_of_a_group(shell: Shell) -> None:
    """A task group's own text names no cause; its parts do."""
    shell("run", "shop:groups", "--id", "g-1")
    code, seen = shell.at_terminal("show", "g-1")
    assert code == 0
    assert re.search(r"^  \+ Exception Group Traceback .*^    \| ValueError: the card", seen, re.DOTALL | re.MULTILINE)
    assert re.search(r'in the activity refuse:\n.*File ".*shop.py", line \d+, in refuse', seen, re.DOTALL)
    assert "perdure/worker" not in seen


def test_show_tells_what_could_be_undone(shell: Shell) -> None:
    shell("run", "shop:books", '["o-1"]', "--id", "o-1")

    _, seen = shell.at_terminal("show", "o-1")

    assert re.search(r"undo +release, failed: LookupError: no hold-o-1\n +reserve, done\n", seen)


def test_list_watches_runs_as_they_change(shell: Shell, tmp_path: Path) -> None:
    """The open ones first, then each change, one line of JSON each, until somebody has seen enough."""
    shell.waits_for_approval("o-1")
    out = tmp_path / "changes.jsonl"
    with out.open("w") as file, out.open() as reading, Path(os.devnull).open() as nothing:
        files = [nothing.fileno(), file.fileno(), file.fileno()]
        with shell.begin("list", "--watch", "--workflow", "checkout", "--json", files=files) as watching:
            until(lambda: "o-1" in out.read_text())
            shell("terminate", "o-1", "--reason", "seen enough")
            until(lambda: "TERMINATED" in out.read_text())
            watching.send(signal.SIGINT)
            assert watching.wait() == 130
        changes = [json.loads(line) for line in reading.read().splitlines()]
    assert (changes[0]["run"]["workflow_id"], changes[0]["left"]) == ("o-1", False)
    assert changes[-1]["run"]["status"] == "TERMINATED"
    assert shell("list", "--watch", "--stuck").code == 64
    assert "--watch" in shell("list", "--watch", "--after", "o-1").err


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        ({"status": ["held"]}, "held is not null"),
        ({"status": ["paused", "failed"]}, "status = 'failed' or held = 'paused'"),
        ({"entity_id": "e", "where": "tier = 1 or tier = 2"}, "entity_id = 'e' and (tier = 1 or tier = 2)"),
        ({"correlation_id": "c", "parent_id": "p"}, "correlation_id = 'c' and parent_id = 'p'"),
        ({"workflow": "w", "id": "i", "where": "a = :a", "params": {"a": 1}}, "workflow = 'w' and id = 'i' and a = 1"),
        ({}, "true"),
    ],
)
def test_a_watch_has_the_filters_of_a_list(words: dict[str, Any], meant: str) -> None:
    given = dict.fromkeys(("workflow", "id", "entity_id", "correlation_id", "parent_id", "where", "params"))
    where, params = as_filter(given | {"status": []} | words)
    assert parse(where, params, now=0) == parse(meant, now=0)


def test_who_watches_sees_a_line_once_however_often_its_run_changes(quick_path: Path) -> None:
    """A run whose attributes change, which no line shows, is not told of again; one that is elsewhere is."""

    async def one() -> RunInfo:
        async with Environment(str(quick_path / "test.db")) as env:
            return await (await env.start(watched_by_people)).describe()

    info, shown = asyncio.run(one()), dict[str, str]()
    moved = [info, replace(info, attributes={"a": 1}), replace(info, step="packing"), replace(info, step="packing")]
    assert [is_news(Change(each, "c", left=False), shown) for each in moved] == [True, False, True, False]
    assert is_news(Change(info, "c", left=True), shown)
    assert shown == {}


@workflow
async def watched_by_people() -> None:
    await sleep(60)
