-- 0013: schedules, and duties, which one worker of a namespace has.
-- Safe before the new code runs: old code knows nothing of the new tables and columns and leaves them alone.

-- duties: what one worker of a namespace does now and then; free when its holder has no row any more.
create table {schema}.duties (
    namespace  text collate "C" not null,
    name       text collate "C" not null,
    holder     text collate "C",
    since      bigint not null,
    last_ok_at bigint not null,
    last_error text collate "C",
    constraint duties_key primary key (namespace, name)
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05);

-- schedules: what starts runs at times; `revision` rises with each change, `next_at` is when to look at it, `waits`
-- whether something starts when none of its runs is open. What it starts and when is in `body`, as JSON.
create table {schema}.schedules (
    schedule_id text collate "C" not null,
    namespace   text collate "C" not null,
    name        text collate "C" not null,
    revision    bigint not null,
    source      text collate "C" not null,
    next_at     bigint,
    waits       bigint not null,
    body        text collate "C" not null,
    constraint schedules_key primary key (schedule_id)
) with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05);
create unique index schedules_name on {schema}.schedules (namespace, name);
create index schedules_due on {schema}.schedules (namespace, next_at) where next_at is not null;
create index schedules_waiting on {schema}.schedules (namespace, name) where waits = 1;
create index schedules_declared on {schema}.schedules (namespace, name) where source = 'code';

-- schedule_decisions: the newest decisions of a schedule, in a ring of slots.
create table {schema}.schedule_decisions (
    schedule_id text collate "C" not null,
    slot        bigint not null,
    number      bigint not null,
    time        bigint not null,
    kind        text collate "C" not null,
    times       bigint not null,
    run_id      text collate "C",
    constraint schedule_decisions_key primary key (schedule_id, slot)
) with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05);

-- Which schedule a run is of, and the nominal time that it was started for.
alter table {schema}.runs add column schedule text collate "C";
alter table {schema}.runs add column scheduled_for bigint;
create index runs_by_schedule on {schema}.runs (namespace, schedule, workflow, status, run_id)
    where schedule is not null;
create index runs_scheduled on {schema}.runs (namespace, schedule) where schedule is not null and closed_at is null;
