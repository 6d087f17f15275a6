"""`perdure audit`: a healthy database is left in peace, whatever it went through, and damage is found and told."""

import asyncio
import itertools
import json
import re
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from perdure.diagnostics.remedies import remedy
from perdure.stores.audit import Violation, invariants
from perdure.stores.rows import held_report
from perdure.stores.sqlite.checks.audit import audit_of
from perdure.testing import Environment
from tests import lived
from tests.cli.shell import Shell
from tests.corruptions import CORRUPTIONS, corrupt, overwrite_a_page

# One of a run that is still open.
AN_EVENT = """(
    select min(events.id)
      from events
      join runs on runs.run_id = events.run_id
     where closed_at is null and kind = 'TimerFired' and runs.namespace = 'main'
)"""
# Which sentence each corruption breaks, for it may break others as well.
BROKEN = {
    "an_event_lost": "event_numbers",
    "the_first_event_lost": "event_numbers",
    "the_last_event_lost": "last_seq",
    "an_event_after_the_end": "last_seq",
    "two_events_swapped": "event_order",
    "a_time_that_goes_back": "event_times",
    "closed_before_its_last_event": "event_times",
    "two_outcomes_at_one_place": "places",
    "an_event_of_no_kind": "event_kinds",
    "a_body_cut_short": "event_bodies",
    "a_body_that_is_no_text": "event_bodies",
    "a_kind_that_is_no_text": "event_kinds",
    "a_timer_that_fired_early": "timers",
    "events_of_no_run": "homeless",
    "an_event_in_another_namespace": "namespaces",
    "a_wrong_number_of_attempts": "counted_attempts",
    "an_attempt_lost": "attempts",
    "a_value_of_a_stream_lost": "stream_numbers",
    "a_head_of_a_stream_that_is_behind": "stream_numbers",
    "a_snapshot_ahead_of_its_history": "snapshots",
    "a_snapshot_cut_short": "snapshots",
    "a_payload_lost": "kept_values",
    "an_input_lost": "kept_values",
    "a_payload_of_nothing": "payloads",
    "an_input_cut_short": "values",
    "an_outcome_of_another_kind": "outcomes",
    "a_failure_that_cannot_be_read": "attempts",
    "deaths_that_cannot_be_read": "values",
    "a_place_that_is_no_text": "columns",
    "a_step_that_is_no_text": "columns",
    "a_priority_that_is_no_number": "columns",
    "a_time_that_is_no_number": "columns",
    "a_run_without_an_id": "columns",
    "an_epoch_that_is_no_number": "columns",
    "a_closed_run_without_a_number": "last_seq",
    "an_open_run_with_a_number": "last_seq",
    "a_workflow_id_that_is_no_text": "last_seq",
    "a_status_that_does_not_exist": "statuses",
    "completed_but_not_closed": "statuses",
    "closed_but_owned": "final",
    "closed_but_ripe": "final",
    "owned_by_nobody_known": "owners",
    "owned_but_pending": "running",
    "running_but_free": "running",
    "never_begun": "begun",
    "held_but_ready": "held",
    "an_open_run_that_is_not_the_latest": "latest",
    "an_id_without_a_latest_run": "latest",
    "two_open_runs_of_one_id": "one_open",
    "a_worker_without_an_epoch": "workers",
    "a_delayed_run_that_never_wakes": "ripe",
    "a_sleeper_that_never_wakes": "woken_by_time",
    "a_sleeper_that_wakes_late": "woken_by_time",
    "a_sleeper_that_knows_no_reason": "ripe",
    "a_signal_that_wakes_nobody": "woken_by_messages",
    "a_request_to_stop_that_wakes_nobody": "woken_by_messages",
    "a_message_lost": "message_counts",
    "a_message_taken_by_no_event": "taken_messages",
    "a_message_taken_by_anothers_event": "taken_once",
    "a_message_that_can_be_taken_again": "received_signals",
    "a_message_of_no_kind": "message_kinds",
    "a_message_cut_short": "message_bodies",
    "a_parent_lost": "parents",
    "a_child_without_a_place": "parents",
    "a_child_started_twice": "children_once",
    "a_parent_not_told": "told_parents",
    "a_parent_told_of_an_end_that_was_not": "told_ends",
    "a_child_left_to_itself": "orphans",
    "a_successor_lost": "successors",
    "a_predecessor_forgotten": "successors",
    "a_predecessor_that_knows_nothing": "predecessors",
    "continued_by_mistake": "successors",
    "an_end_as_nothing": "ends_by_the_clock",
    "a_timeout_without_an_end": "ends_by_the_clock",
    "a_cancel_forgotten": "cancels",
    "an_older_version": "schema",
    "no_version": "schema",
    "an_index_dropped": "schema",
    "a_table_dropped": "schema",
}


@pytest.fixture(scope="session")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database whose worker died with runs of every kind in it."""
    path = tmp_path_factory.mktemp("lived") / "perdure.db"
    asyncio.run(lived.live(path))
    return path


@pytest.fixture
def file(healthy: Path, shell: Shell) -> Path:
    """A copy of it, in the folder of the shell."""
    return Path(shutil.copy(healthy, shell.folder / "perdure.db"))


def test_a_database_that_has_lived_is_clean(healthy: Path) -> None:
    """An audit that cries wolf is not read; this file has been through everything that can happen to runs."""
    with closing(sqlite3.connect(f"{healthy.as_uri()}?mode=ro", uri=True)) as db:
        statuses = {status for (status,) in db.execute("select distinct status from runs")}
        counts = [db.execute(f"select count(*) from {table}").fetchone()[0] for table in ("attempts", "payloads")]
    assert statuses == {
        *("PENDING", "RUNNING", "SUSPENDED", "COMPLETED", "FAILED"),
        *("CANCELLED", "TERMINATED", "TIMED_OUT", "CONTINUED"),
    }
    assert min(counts) > 0

    found = audit_of(healthy)

    assert found.violations == ()
    assert [check.check for check in found.checks] == list(invariants())
    assert len(found.checks) >= 40
    assert found.runs > 30


@pytest.mark.parametrize("name", CORRUPTIONS)
def test_each_corruption_is_found(file: Path, name: str) -> None:
    """Whatever a bug or a careless hand did, the sentence it breaks is named."""
    corrupt(file, name)
    found = audit_of(file)
    assert BROKEN[name] in {violation.check for violation in found.violations}


def test_every_sentence_is_broken_by_some_corruption() -> None:
    """A check that no corruption trips may be blind. Damage of the file itself is tried below."""
    assert set(BROKEN) == set(CORRUPTIONS)
    assert set(BROKEN.values()) | {"file"} == set(invariants())


def test_every_finding_says_what_to_do() -> None:
    for (check, invariant), has_ended in itertools.product(invariants().items(), [False, True]):
        told = remedy(Violation(check, invariant, "elsewhere", "an id", "17", "is odd", has_ended))
        assert len(told) > 20
        assert "{" not in told
        assert "perdure" not in told or "17 --namespace elsewhere`" in told


def test_a_clean_database_is_told_in_two_lines(shell: Shell, file: Path) -> None:
    """Nothing is changed by it, and no file appears beside it."""
    before = {path: path.read_bytes() for path in shell.folder.rglob("*") if path.is_file()}

    code, seen = shell.at_terminal("audit")

    assert code == 0
    assert re.fullmatch(
        r"\d+ runs and \d+ events looked at, \d+ checks in [\d.]+ m?s\neverything fits together\n", seen
    )
    assert {path: path.read_bytes() for path in shell.folder.rglob("*") if path.is_file()} == before
    done = shell("audit").json
    assert (done["ok"], done["findings"]) == (True, [])
    assert {check["check"] for check in done["checks"]} == set(invariants())


def test_a_finding_names_sentence_run_trouble_and_remedy(shell: Shell, file: Path) -> None:
    corrupt(file, "a_delayed_run_that_never_wakes")

    code, seen = shell.at_terminal("audit", "--verbose")

    assert code == 1
    assert re.search(r"^ok +event_numbers +[\d.]+ m?s +the events of a run are numbered", seen, re.MULTILINE)
    assert re.search(r"^1 +ripe ", seen, re.MULTILINE)
    assert re.search(r"^delayed \([0-9a-f]{28}\): is PENDING, but never ripe$", seen, re.MULTILINE)
    assert "\n  must be  a run that nobody owns and nothing holds back is ripe or says what it waits for.\n" in seen
    assert re.search(r"→ it would sleep for ever: .*\(`perdure terminate [0-9a-f]{28}`\)", seen)
    assert seen.endswith("1 finding\n")
    done = shell("audit")
    assert (done.code, done.err) == (1, "")
    assert '"workflow_id": "delayed"' in done.out


@pytest.mark.parametrize("id", ["in vain", "parent", "steps"])
def test_a_spoilt_column_is_told_of_the_run_that_has_it(file: Path, id: str) -> None:
    """The name was that of another run, which somebody would then have ended."""
    with closing(sqlite3.connect(file)) as db, db:
        ((run_id,),) = db.execute("select run_id from runs where workflow_id = ?", (id,)).fetchall()
        db.execute("update runs set wake_at = 'soon' where run_id = ?", (run_id,))
    found = audit_of(file).violations
    assert {(each.workflow_id, each.run_id) for each in found} == {(id, run_id)}
    assert "its wake_at holds what does not belong there" in {each.found for each in found}
    assert "woken_by_time" not in {each.check for each in found}


def test_times_are_told_as_times(file: Path) -> None:
    """Thirteen digits are no time to anybody who was woken up."""
    corrupt(file, "a_sleeper_that_wakes_late")
    corrupt(file, "closed_but_ripe")
    told = [each.found for each in audit_of(file).violations]
    moment = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC"
    assert any(re.fullmatch(rf"waits until {moment}, but wakes [\d.]+ s later", each) for each in told)
    assert any(re.fullmatch(rf"is COMPLETED, but is to wake at {moment}", each) for each in told)


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("a_body_cut_short", "cannot be read as ActivityCompleted: Input data was truncated"),
        ("a_body_that_is_no_text", "cannot be read as ActivityCompleted: it is no text"),
        ("a_message_cut_short", "cannot be read: Input data was truncated"),
        ("an_input_cut_short", "its input cannot be read: "),
        ("an_outcome_of_another_kind", "but its outcome cannot be read as that: Object missing required field"),
        ("a_failure_that_cannot_be_read", "cannot be read: "),
        ("an_event_of_no_kind", "is of the kind ActivityDreamt, which this Perdure does not know"),
        ("a_message_of_no_kind", "is of the kind DreamSent, which this Perdure does not know"),
    ],
)
def test_what_cannot_be_read_is_told_with_the_reason(file: Path, name: str, told: str) -> None:
    """The worker that holds the run knows it; whoever corrects the row by hand needs it as well."""
    corrupt(file, name)
    assert [each.found for each in audit_of(file).violations if told in each.found] != []


def test_nobody_is_told_to_end_a_run_of_a_newer_perdure(shell: Shell, file: Path) -> None:
    """After a way back to an older version all of them look so, and all are sound."""
    with closing(sqlite3.connect(file)) as db, db:
        db.execute(f"update events set kind = 'FutureEvent' where id = {AN_EVENT}")
    found = json.loads(shell("audit").out)["findings"]
    assert [each["check"] for each in found] == ["event_kinds"]
    assert "a newer Perdure" in found[0]["remedy"]
    assert f"perdure resume {found[0]['run_id']}" in found[0]["remedy"]
    assert "terminate" not in found[0]["remedy"]


def test_of_what_cannot_be_read_audit_and_show_say_the_same(shell: Shell, file: Path) -> None:
    """One told to correct it, the other to end the run."""
    with closing(sqlite3.connect(file)) as db, db:
        db.execute(f"update events set body = '{{' where id = {AN_EVENT}")
    (found,) = json.loads(shell("audit").out)["findings"]
    words = [
        "correct it by hand",
        "backup",
        f"perdure resume {found['run_id']}",
        f"perdure terminate {found['run_id']}",
    ]
    assert [word for word in words if word not in found["remedy"]] == []
    report = json.loads(held_report("event 2 cannot be read", found["run_id"]))["remedy"]
    assert [word for word in words if word not in report] == []


@pytest.mark.parametrize("statement", ["step = x'00ff'", "wake_at = 1", "input = '{'", "outcome = '{'"])
def test_nobody_is_told_to_end_a_run_that_has_ended(shell: Shell, file: Path, statement: str) -> None:
    """It cannot be done, and the finding would stay."""
    with closing(sqlite3.connect(file)) as db, db:
        db.execute(f"update runs set {statement} where workflow_id = 'steps'")
    for found in json.loads(shell("audit").out)["findings"]:
        assert found["has_ended"]
        assert "terminate" not in found["remedy"]
        assert "if it is open" not in found["remedy"]


def test_too_many_findings_are_cut(shell: Shell, file: Path) -> None:
    """A million of them would help nobody."""
    with closing(sqlite3.connect(file)) as db:
        db.executemany(
            "insert into payloads (run_id, seq, namespace, body) values ('nobody', ?, 'main', '1')",
            [(n,) for n in range(500)],
        )
        db.commit()
    code, seen = shell.at_terminal("audit")
    assert code == 1
    assert seen.endswith("101 findings and more\n")


@pytest.mark.parametrize("page", [1, 2, 3, 9, 20, 25, 31, 40])
def test_a_file_that_is_damaged_is_told_and_not_traced(shell: Shell, file: Path, page: int) -> None:
    """A page of nonsense ends in words, wherever it lies."""
    overwrite_a_page(file, page)
    done = shell("audit")
    assert done.code == 1
    assert "bring back a backup" in done.out + done.err
    assert "Traceback" not in done.err
    assert done.err.count("\n") <= 1


def test_what_is_no_database_of_ours_is_refused(shell: Shell, file: Path) -> None:
    with closing(sqlite3.connect(shell.folder / "other.db")) as db:
        db.execute("create table customers (name)")
    with closing(sqlite3.connect(file)) as db:
        db.execute("update perdure_schema set version = 99")
        db.commit()
    for words, told in (
        (["--url", "sqlite:///missing.db"], "there is no database 'missing.db'"),
        (["--url", "sqlite:///shop.py"], "file is not a database"),
        (["--url", "sqlite:///other.db"], "a database without runs of Perdure"),
        (["--url", "sqlite://"], "the memory of one process"),
        ([], "schema 99, this Perdure knows up to"),
    ):
        done = shell("audit", *words)
        assert done.code != 0
        assert told in done.err
        assert done.err.count("\n") == 1


def test_an_older_schema_is_told_and_left_alone(tmp_path: Path, shell: Shell) -> None:
    """An audit migrates nothing."""
    path = shell.folder / "perdure.db"
    first = Path(lived.__file__).parents[1] / "src/perdure/stores/sqlite/migrations/0001.sql"
    with closing(sqlite3.connect(path)) as db:
        db.executescript(first.read_text())
    before = path.read_bytes()
    done = shell("audit")
    assert done.code == 1
    assert "the database has schema 1, the audit is for" in done.err
    assert path.read_bytes() == before


async def test_workers_at_work_are_seen_at_one_moment(tmp_path: Path) -> None:
    """Between two questions a worker may write; all questions must be about one moment."""
    path = tmp_path / "busy.db"
    async with Environment(str(path), workflows=lived.KINDS) as env:
        audits = 0
        for number in range(5):
            working = asyncio.ensure_future(_busy(env, number))
            while not working.done():
                assert audit_of(path).violations == ()
                audits += 1
                await asyncio.sleep(0)
            await working
        assert audits > 10
        await env.pass_time(60)
        assert audit_of(path).violations == ()


async def _busy(env: Environment, number: int) -> None:
    """Start and end runs, with their families and messages."""
    family = await env.start(lived.lives_before_children.options(on_conflict="terminate", id="family"))
    heirs = await env.start(lived.lives_in_generations.options(id=f"heirs {number}"), 3)
    for _ in range(4):
        await heirs.signal(lived.word, "go")
    await env.settle()
    await env.pass_time(1)
    await env.result(family)
