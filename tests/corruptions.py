"""Corruptions: each damages a healthy database in one way, as a bug or a careless hand would.

In:   a file made by `tests.lived`, and the name of a corruption.
Out:  the same file, damaged. Plain `sqlite3` only: it knows nothing of who is to find it.

    python -m tests.corruptions FILE NAME
"""

import sqlite3
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TypeAlias

Corruption: TypeAlias = Callable[[sqlite3.Connection], object]
CORRUPTIONS: dict[str, Corruption] = {}
# Those that are a few statements.
STATEMENTS: dict[str, tuple[str, ...]] = {}

STEPS = "(select run_id from runs where workflow_id = 'steps')"
LARGE = "(select run_id from runs where workflow_id = 'large')"
WORDS = "(select run_id from runs where workflow_id = 'words' and is_latest)"
SPOKEN = "(select run_id from runs where workflow_id = 'words' and not is_latest)"
PARENT = "(select run_id from runs where workflow_id = 'parent')"
PAGE = 4096


def corruption(function: Corruption) -> Corruption:
    CORRUPTIONS[getattr(function, "__name__", "")] = function
    return function


def by(name: str, *statements: str) -> None:
    """A corruption that is a few statements."""

    def corrupt(db: sqlite3.Connection) -> None:
        changed = sum(db.execute(statement).rowcount for statement in statements)
        assert changed, f"{name} has changed nothing"

    CORRUPTIONS[name] = corrupt
    STATEMENTS[name] = statements


def corrupt(path: Path, name: str) -> None:
    """Damage the file."""
    with closing(sqlite3.connect(path)) as db:
        CORRUPTIONS[name](db)
        db.commit()


# Histories

by("an_event_lost", f"delete from events where run_id = {STEPS} and seq = 3")
by("the_first_event_lost", f"delete from events where run_id = {STEPS} and seq = 2")
by("the_last_event_lost", f"delete from events where run_id = {STEPS} and seq = 4")
by(
    "an_event_after_the_end",
    f"""insert into events (namespace, run_id, seq, kind, place, at, body)
        select namespace, run_id, 5, kind, 'lives#9', at, body from events where run_id = {STEPS} and seq = 4""",
)
by(
    "two_events_swapped",
    f"update events set seq = -3 where run_id = {STEPS} and seq = 3",
    f"update events set seq = 3 where run_id = {STEPS} and seq = 4",
    f"update events set seq = 4 where run_id = {STEPS} and seq = -3",
)
by("a_time_that_goes_back", f"update events set at = at - 5000 where run_id = {STEPS} and seq = 3")
by("closed_before_its_last_event", "update runs set closed_at = closed_at - 900000 where workflow_id = 'timed out'")
by("two_outcomes_at_one_place", f"update events set place = 'lives' where run_id = {STEPS}")
by("an_event_of_no_kind", f"update events set kind = 'ActivityDreamt' where run_id = {STEPS} and seq = 3")
by("a_body_cut_short", f"update events set body = substr(body, 1, 20) where run_id = {STEPS} and seq = 3")
by("a_body_that_is_no_text", f"update events set body = cast(x'7bff7d' as text) where run_id = {STEPS} and seq = 3")
by("a_kind_that_is_no_text", f"update events set kind = cast(x'7bff7d' as text) where run_id = {STEPS} and seq = 3")
by("a_timer_that_fired_early", "update events set at = at - 5000 where kind = 'TimerFired' and seq = 2")
by("events_of_no_run", "delete from runs where workflow_id = 'steps'")
by("an_event_in_another_namespace", f"update events set namespace = 'elsewhere' where run_id = {STEPS} and seq = 3")
by(
    "a_wrong_number_of_attempts",
    "delete from attempts where run_id in (select run_id from runs where workflow_id = 'retries')",
)
by("an_attempt_lost", "delete from attempts where attempt = 1 and place = 'lives_the_third_time'")

# Streams and snapshots

by("a_value_of_a_stream_lost", f"delete from streams where run_id = {STEPS} and n = 2")
by("a_head_of_a_stream_that_is_behind", f"update stream_heads set n = 1 where run_id = {STEPS}")
by("a_snapshot_ahead_of_its_history", f"update snapshots set seq = 77 where run_id = {STEPS}")
by("a_snapshot_cut_short", f"update snapshots set body = '[' where run_id = {STEPS}")

# Values

by("a_payload_lost", f"delete from payloads where run_id = {LARGE} and seq = 2")
by("an_input_lost", "update runs set input = null where workflow_id = 'steps'")
by("a_payload_of_nothing", f"update payloads set seq = 77 where run_id = {LARGE} and seq = 3")
by("an_input_cut_short", "update runs set input = '[' where workflow_id = 'asleep'")
by("an_outcome_of_another_kind", "update runs set outcome = '{\"reason\":1}' where workflow_id = 'failed'")
by("a_failure_that_cannot_be_read", "update attempts set failure = '\"oops\"'")

by("deaths_that_cannot_be_read", "update runs set deaths = '[{}]' where workflow_id = 'asleep'")
by("a_place_that_is_no_text", f"update events set place = cast(x'7bff7d' as text) where run_id = {STEPS} and seq = 3")
by("a_step_that_is_no_text", "update runs set step = x'00ff' where workflow_id = 'asleep'")
by("a_priority_that_is_no_number", "update runs set priority = 'high' where workflow_id = 'asleep'")
by("a_time_that_is_no_number", f"update inbox set at = 'noon' where run_id = {SPOKEN} and taken_by is null")
by("a_run_without_an_id", "update runs set run_id = null where workflow_id = 'steps'")
by("an_epoch_that_is_no_number", "update workers set epoch = 'x'")

# Where runs stand

by("a_closed_run_without_a_number", "update runs set last_seq = null where workflow_id = 'steps'")
by("an_open_run_with_a_number", "update runs set last_seq = 3 where workflow_id = 'asleep'")
by("a_workflow_id_that_is_no_text", "update runs set workflow_id = x'00ff', last_seq = 1 where workflow_id = 'steps'")
by("a_status_that_does_not_exist", "update runs set status = 'DREAMING' where workflow_id = 'asleep'")
by("completed_but_not_closed", "update runs set closed_at = null where workflow_id = 'steps'")
by("closed_but_owned", "update runs set owner = (select worker_id from workers) where workflow_id = 'steps'")
by("closed_but_ripe", "update runs set wake_at = 1 where workflow_id = 'steps'")
by("owned_by_nobody_known", "update runs set owner = 'nobody' where workflow_id = 'owned'")
by("owned_but_pending", "update runs set status = 'PENDING' where workflow_id = 'owned'")
by("running_but_free", "update runs set owner = null where workflow_id = 'owned'")
by("never_begun", "update runs set begun_at = null where workflow_id = 'asleep'")
by("held_but_ready", "update runs set status = 'PENDING' where workflow_id = 'held'")
by("an_open_run_that_is_not_the_latest", "update runs set is_latest = 0 where workflow_id = 'asleep'")
by("an_id_without_a_latest_run", "update runs set is_latest = 0 where workflow_id = 'again'")
by("a_worker_without_an_epoch", "update workers set epoch = 0")


@corruption
def two_open_runs_of_one_id(db: sqlite3.Connection) -> None:
    db.execute("drop index runs_by_workflow_id")
    db.execute("update runs set workflow_id = 'asleep' where workflow_id = 'has a timeout'")


# Lost wake-ups

by("a_delayed_run_that_never_wakes", "update runs set wake_at = null where workflow_id = 'delayed'")
by("a_sleeper_that_never_wakes", "update runs set wake_at = null where workflow_id = 'asleep'")
by("a_sleeper_that_wakes_late", "update runs set wake_at = wake_at + 60000 where workflow_id = 'in vain'")
by("a_sleeper_that_knows_no_reason", "update runs set waiting = null where workflow_id = 'asleep'")
by(
    "a_signal_that_wakes_nobody",
    f"""insert into inbox (namespace, run_id, message_id, kind, body, at)
        select namespace, run_id, 'lost', 'SignalSent', '{{"name":"word","payload":"lost"}}', created_at
          from runs where run_id = {WORDS}""",
    f"update runs set messages = messages + 1 where run_id = {WORDS}",
)
by(
    "a_request_to_stop_that_wakes_nobody",
    f"""insert into inbox (namespace, run_id, message_id, kind, body, at)
        select namespace, run_id, 'lost', 'TerminateRequest', '{{}}', created_at
          from runs where run_id = {WORDS}""",
    f"update runs set messages = messages + 1 where run_id = {WORDS}",
)

# Messages

by("a_message_lost", f"delete from inbox where run_id = {SPOKEN} and taken_by is null")
by("a_message_taken_by_no_event", f"update inbox set taken_by = 99 where run_id = {SPOKEN} and taken_by = 2")
by("a_message_taken_by_anothers_event", f"update inbox set taken_by = 2 where run_id = {SPOKEN} and taken_by = 3")
by("a_message_that_can_be_taken_again", f"update inbox set taken_by = null where run_id = {SPOKEN} and taken_by = 2")
by("a_message_of_no_kind", f"update inbox set kind = 'DreamSent' where run_id = {SPOKEN} and taken_by is null")
by("a_message_cut_short", f"update inbox set body = '{{' where run_id = {SPOKEN} and taken_by is null")

# Families and generations

by("a_parent_lost", "update runs set parent_id = 'nobody' where workflow_id = 'child asleep'")
by("a_child_without_a_place", "update runs set parent_place = null where workflow_id = 'child asleep'")
by(
    "a_child_started_twice",
    """update runs set parent_place = (select parent_place from runs where workflow_id = 'child that ends')
        where workflow_id = 'child asleep'""",
)
by(
    "a_parent_not_told",
    f"""delete from inbox
         where run_id = {PARENT}
           and message_id = 'child:' || (select run_id from runs where workflow_id = 'child that ends')""",
)
by(
    "a_parent_told_of_an_end_that_was_not",
    "update runs set status = 'CANCELLED', outcome = '{}' where workflow_id = 'child that ends'",
)
by("a_child_left_to_itself", "update runs set cancel_requested_at = null where workflow_id = 'left to cancel'")
by(
    "a_successor_lost",
    "update runs set outcome = '{\"run_id\":\"nobody\"}' where workflow_id = 'generations' and continued_from is null",
)
by(
    "a_predecessor_forgotten",
    "update runs set continued_from = null where workflow_id = 'generations' and status = 'COMPLETED'",
)
by(
    "a_predecessor_that_knows_nothing",
    """update runs set continued_from = (select run_id from runs where workflow_id = 'steps')
        where workflow_id = 'generations' and status = 'COMPLETED'""",
)
by("continued_by_mistake", "update runs set status = 'CONTINUED' where workflow_id = 'steps'")

# Ends by the clock, and requests to stop

by("an_end_as_nothing", "update runs set close_as = null where workflow_id = 'has a timeout'")
by("a_timeout_without_an_end", "update runs set close_at = null, close_as = null where workflow_id = 'has a timeout'")
by("a_cancel_forgotten", "update runs set cancel_requested_at = null where workflow_id = 'cancelled twice'")

# The schema

by("an_older_version", "update perdure_schema set version = 1")
by("no_version", "delete from perdure_schema")


@corruption
def an_index_dropped(db: sqlite3.Connection) -> None:
    db.execute("drop index runs_ripe")


@corruption
def a_table_dropped(db: sqlite3.Connection) -> None:
    db.execute("drop table attempts")


def overwrite_a_page(path: Path, number: int) -> None:
    """Damage the file itself: one page of it is nonsense."""
    with path.open("r+b") as file:
        file.seek(PAGE * (number - 1))
        file.write(bytes(range(256)) * (PAGE // 256))


if __name__ == "__main__":
    corrupt(Path(sys.argv[1]), sys.argv[2])
