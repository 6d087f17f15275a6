-- 0002: runs have parents, successors and an end by the clock; a request to stop is seen in the row.
-- Safe before the new code runs: every column may be empty and old code ignores it.
-- close_at and close_as say when a run is closed whatever its code does, and as what.

alter table runs add column parent_place text;
alter table runs add column on_parent_close text;
alter table runs add column initial_attributes text;
alter table runs add column begun_at integer;
alter table runs add column timeout_ms integer;
alter table runs add column delayed_until integer;
alter table runs add column close_at integer;
alter table runs add column close_as text;
alter table runs add column cancel_requested_at integer;
alter table runs add column cancel_reason text;
alter table runs add column continued_from text;

-- begun_at is when a run's code was first called: its clock begins there. So far it began with the run itself.
update runs
   set begun_at = created_at
 where status <> 'PENDING'
    or owner is not null
    or waiting is not null
    or exists (select 1 from events where events.run_id = runs.run_id)
    or exists (select 1 from attempts where attempts.run_id = runs.run_id);

create index runs_by_parent on runs (parent_id, parent_place) where parent_id is not null;
create index runs_closing on runs (close_at) where close_at is not null and closed_at is null;
