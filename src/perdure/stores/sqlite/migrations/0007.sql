-- 0007: what is asked for by a filter, and the next end by the clock, are found without a walk over all other runs.
-- Safe before the new code runs: old code names runs_closing, and finds what it looks for there.

drop index runs_closing;
create index runs_closing on runs (namespace, close_at) where close_at is not null and closed_at is null;

-- What leads to runs goes on with workflow, status and run_id: a page of those of one kind is read from its end.
drop index runs_by_workflow;
drop index runs_ended_badly;
drop index runs_by_entity;
drop index runs_by_correlation;
drop index runs_held;
create index runs_by_workflow on runs (namespace, workflow, status, run_id);
create index runs_by_entity on runs (namespace, entity_id, workflow, status, run_id) where entity_id is not null;
create index runs_by_correlation on runs (namespace, correlation_id, workflow, status, run_id)
    where correlation_id is not null;
create index runs_of_parent on runs (namespace, parent_id, workflow, status, run_id) where parent_id is not null;
create index runs_superseded on runs (namespace, workflow_id, workflow, status, run_id) where not is_latest;
create index runs_held on runs (namespace, workflow, held, run_id) where held is not null;
