-- 0022: sinks, and the events that wait for them.
-- Safe before the new code runs: old code knows nothing of the new tables, and tells no sink what it changes.

-- sinks: who is told of changes. `types` has a bit for each type of event, `workflows` is JSON, empty for all;
-- `behind_at` is since when nothing more is queued, for too much waits.
create table sinks (
    sink_id     text not null primary key,
    namespace   text not null,
    name        text not null,
    revision    integer not null,
    types       integer not null,
    workflows   text,
    max_backlog integer not null,
    behind_at   integer,
    delivered   integer not null,
    body        text not null
) without rowid;
create unique index sinks_name on sinks (namespace, name);

-- outbox: what sinks are to be told, a row for each sink. `next_at` is 0 for what was not tried yet, and empty for what
-- waits for an earlier event of its run. `number` is the place of the event in the history of its run.
create table outbox (
    n           integer primary key autoincrement,
    sink_id     text not null,
    run_id      text not null,
    workflow_id text,
    workflow    text,
    type        text not null,
    number      integer not null,
    at          integer not null,
    step        text,
    held        text,
    attributes  text,
    attempts    integer not null,
    next_at     integer,
    error       text
);
create index outbox_due on outbox (sink_id, next_at, n) where next_at is not null;
create index outbox_of_run on outbox (sink_id, run_id, n);

-- dead_letters: events that a sink did not take, however often it was tried.
create table dead_letters (
    n           integer not null primary key,
    sink_id     text not null,
    run_id      text not null,
    workflow_id text,
    workflow    text,
    type        text not null,
    number      integer not null,
    at          integer not null,
    step        text,
    held        text,
    attributes  text,
    attempts    integer not null,
    error       text,
    died_at     integer not null
);
create index dead_letters_of_sink on dead_letters (sink_id, n);
