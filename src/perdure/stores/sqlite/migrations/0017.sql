-- 0017: schedules, and duties, which one worker of a namespace has.
-- Safe before the new code runs: old code knows nothing of the new tables and columns and leaves them alone.

-- duties: what one worker of a namespace does now and then; free when its holder has no row any more.
create table duties (
    namespace  text not null,
    name       text not null,
    holder     text,
    since      integer not null,
    last_ok_at integer not null,
    last_error text,
    primary key (namespace, name)
) without rowid;

-- schedules: what starts runs at times; `revision` rises with each change, `next_at` is when to look at it, `waits`
-- whether something starts when none of its runs is open. What it starts and when is in `body`, as JSON.
create table schedules (
    schedule_id text not null primary key,
    namespace   text not null,
    name        text not null,
    revision    integer not null,
    source      text not null,
    next_at     integer,
    waits       integer not null,
    body        text not null
) without rowid;
create unique index schedules_name on schedules (namespace, name);
create index schedules_due on schedules (namespace, next_at) where next_at is not null;
create index schedules_waiting on schedules (namespace, name) where waits = 1;
create index schedules_declared on schedules (namespace, name) where source = 'code';

-- schedule_decisions: the newest decisions of a schedule, in a ring of slots.
create table schedule_decisions (
    schedule_id text not null,
    slot        integer not null,
    number      integer not null,
    time        integer not null,
    kind        text not null,
    times       integer not null,
    run_id      text,
    primary key (schedule_id, slot)
) without rowid;

-- Which schedule a run is of, and the nominal time that it was started for.
alter table runs add column schedule text;
alter table runs add column scheduled_for integer;
create index runs_by_schedule on runs (namespace, schedule, workflow, status, run_id) where schedule is not null;
create index runs_scheduled on runs (namespace, schedule) where schedule is not null and closed_at is null;
