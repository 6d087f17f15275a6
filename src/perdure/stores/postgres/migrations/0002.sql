-- 0002: what is due is found by its time, however many priorities there are.
-- Safe before the new code runs: old code does not look at this index.
-- The queue is an expression, so that no question takes this index that wants the runs of one priority: the planner
-- would walk over all others of their workflow.

create index runs_due on {schema}.runs ((queue || ''), namespace, workflow, wake_at, run_id)
    where owner is null and wake_at is not null and losses < 2;
