"""Under fire on Postgres: every bar that real processes have to pass there, run once, with a table at the end.

    python -m tests.postgres.fire [NAME ...]

Takes about half an hour for all of them.
"""

import sys

from tests.processes.fire import Bar, main

BARS = {
    "postgres-crashes": Bar("30 crashes", "test_restarts.py"),
    "postgres-zombies": Bar("50 zombies", "test_takeover.py::test_fifty_zombies_are_refused_under_load"),
    "postgres-rolling": Bar("50 rounds", "test_takeover.py::test_fifty_rolling_restarts_fail_and_repeat_nothing"),
    "postgres-backends": Bar(
        "200 backends", "test_cut_off.py::test_hundreds_of_backends_that_are_terminated_harm_nothing"
    ),
    "postgres-cuts": Bar("300 cuts", "test_cut_off.py::test_hundreds_of_cuts_around_commits_make_one_transition_each"),
    "postgres-transactions": Bar("200 kills", "test_transaction_kills.py"),
    "postgres-holders": Bar("50 kills", "test_schedules.py"),
    "postgres-outbox-writers": Bar("100,000 events", "test_outbox.py"),
    "postgres-servers": Bar("100 kills", "test_remote_workers.py"),
    "postgres-hot": Bar("1,000,000 events", "test_hot_tables.py"),
    "postgres-claims": Bar("100,000 tasks", "test_races.py"),
}

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], BARS, "tests/postgres"))
