-- 0018: sinks, and the events that wait for them.
-- Safe before the new code runs: old code knows nothing of the new tables, and tells no sink what it changes.

-- sinks: who is told of changes. `types` has a bit for each type of event, `workflows` is JSON, empty for all;
-- `behind_at` is since when nothing more is queued, for too much waits.
create table {schema}.sinks (
    sink_id     text collate "C" not null,
    namespace   text collate "C" not null,
    name        text collate "C" not null,
    revision    bigint not null,
    types       bigint not null,
    workflows   text collate "C",
    max_backlog bigint not null,
    behind_at   bigint,
    delivered   bigint not null,
    body        text collate "C" not null,
    constraint sinks_key primary key (sink_id)
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05);
create unique index sinks_name on {schema}.sinks (namespace, name);

-- outbox: what sinks are to be told, a row for each sink. `next_at` is 0 for what was not tried yet, and empty for what
-- waits for an earlier event of its run. `number` is the place of the event in the history of its run.
create table {schema}.outbox (
    n           bigint generated always as identity,
    sink_id     text collate "C" not null,
    run_id      text collate "C" not null,
    workflow_id text collate "C",
    workflow    text collate "C",
    type        text collate "C" not null,
    number      bigint not null,
    at          bigint not null,
    step        text collate "C",
    held        text collate "C",
    attributes  text collate "C",
    attempts    bigint not null,
    next_at     bigint,
    error       text collate "C",
    constraint outbox_key primary key (n)
) with (autovacuum_vacuum_scale_factor = 0.05);
create index outbox_due on {schema}.outbox (sink_id, next_at, n) where next_at is not null;
create index outbox_of_run on {schema}.outbox (sink_id, run_id, n);

-- dead_letters: events that a sink did not take, however often it was tried.
create table {schema}.dead_letters (
    n           bigint not null,
    sink_id     text collate "C" not null,
    run_id      text collate "C" not null,
    workflow_id text collate "C",
    workflow    text collate "C",
    type        text collate "C" not null,
    number      bigint not null,
    at          bigint not null,
    step        text collate "C",
    held        text collate "C",
    attributes  text collate "C",
    attempts    bigint not null,
    error       text collate "C",
    died_at     bigint not null,
    constraint dead_letters_key primary key (n)
);
create index dead_letters_of_sink on {schema}.dead_letters (sink_id, n);
