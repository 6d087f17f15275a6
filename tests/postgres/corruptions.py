"""Corruptions of a Postgres database: those of a file, as far as Postgres lets anybody do them, and some of its own.

In:   the URL of a database made by `tests.lived`, and the name of a corruption.
Out:  the same database, damaged. Plain asyncpg only: it knows nothing of who is to find it.
"""

import asyncpg

from tests import corruptions

# A column takes what it is for and nothing else, and text is text.
IMPOSSIBLE = {
    *("a_body_that_is_no_text", "a_kind_that_is_no_text", "a_place_that_is_no_text", "a_step_that_is_no_text"),
    *("a_priority_that_is_no_number", "a_time_that_is_no_number", "an_epoch_that_is_no_number"),
    *("a_run_without_an_id", "a_workflow_id_that_is_no_text"),
}
# Which sentence each of these breaks.
OF_POSTGRES = {
    "two_open_runs_of_one_id": "one_open",
    "an_event_written_twice": "event_numbers",
    "an_index_dropped": "schema",
    "an_index_that_is_not_unique": "schema",
    "an_index_that_is_not_valid": "schema",
    "a_table_dropped": "schema",
    "a_column_dropped": "schema",
    "a_column_of_another_kind": "schema",
    "a_column_that_may_be_empty": "schema",
    "a_function_dropped": "schema",
    "an_older_version": "schema",
    "two_versions": "schema",
}
_STATEMENTS = {
    "two_open_runs_of_one_id": [
        "drop index runs_by_workflow_id",
        "update runs set workflow_id = 'asleep' where workflow_id = 'has a timeout'",
    ],
    "an_event_written_twice": [
        "alter table events drop constraint events_key",
        f"""insert into events (namespace, run_id, seq, kind, place, at, body)
            select namespace, run_id, seq, kind, place, at, body from events
             where run_id = {corruptions.STEPS} and seq = 3""",
    ],
    "an_index_dropped": ["drop index runs_ripe"],
    "an_index_that_is_not_unique": [
        "drop index runs_by_workflow_id",
        "create index runs_by_workflow_id on runs (namespace, workflow_id) where is_latest",
    ],
    # As `create index concurrently` leaves it when it fails.
    "an_index_that_is_not_valid": ["update pg_index set indisvalid = false where indexrelid = 'runs_ripe'::regclass"],
    "a_table_dropped": ["drop table attempts cascade"],
    "a_column_dropped": ["alter table runs drop column deaths"],
    "a_column_of_another_kind": ["drop view v_runs", "alter table runs alter column step type varchar(20)"],
    "a_column_that_may_be_empty": ["alter table events alter column kind drop not null"],
    "a_function_dropped": [
        """do $$ declare each record; begin
             for each in select oid::regprocedure as name from pg_proc where pronamespace = 'perdure'::regnamespace loop
               execute format('drop function %s', each.name);
             end loop;
           end $$"""
    ],
    "an_older_version": ["update perdure_schema set version = 0"],
    "two_versions": ["insert into perdure_schema (version) values (1)"],
}
NAMES = [*(name for name in corruptions.STATEMENTS if name not in IMPOSSIBLE | OF_POSTGRES.keys()), *OF_POSTGRES]


async def corrupt(url: str, name: str) -> None:
    """Damage the database."""
    db = await asyncpg.connect(url, server_settings={"search_path": "perdure"})
    try:
        for statement in _STATEMENTS.get(name) or corruptions.STATEMENTS[name]:
            done = await db.execute(statement.replace("is_latest = 0", "is_latest = false"))
            assert not done.endswith(" 0"), f"{name} has changed nothing"
    finally:
        await db.close()
