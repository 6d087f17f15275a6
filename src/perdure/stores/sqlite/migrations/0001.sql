-- 0001: the first schema: runs, their events, inboxes, payloads and attempts, and the workers.
-- Times are integer milliseconds. Rows of a run carry run_id and namespace.

create table runs (
    run_id         text primary key,
    namespace      text not null,
    workflow_id    text not null,
    is_latest      integer not null default 1,
    workflow       text not null,
    queue          text not null,
    status         text not null,
    held           text,
    held_report    text,
    owner          text,
    wake_at        integer,
    waiting        text,
    messages       integer not null default 0,
    priority       integer not null default 0,
    parent_id      text,
    entity_id      text,
    correlation_id text,
    attributes     text,
    step           text,
    input          text,
    outcome        text,
    seed           integer not null,
    last_seq       integer,
    created_at     integer not null,
    updated_at     integer not null,
    closed_at      integer
);

-- One latest run per workflow_id; an earlier one is always closed.
create unique index runs_by_workflow_id on runs (namespace, workflow_id) where is_latest;
create index runs_by_workflow on runs (namespace, workflow, run_id);
create index runs_ripe on runs (queue, priority desc, wake_at) where owner is null and wake_at is not null;
create index runs_open on runs (owner, run_id) where closed_at is null;
create index runs_ended_badly on runs (namespace, status, run_id)
    where status in ('FAILED', 'CANCELLED', 'TERMINATED', 'TIMED_OUT');
create index runs_by_entity on runs (namespace, entity_id, run_id) where entity_id is not null;
create index runs_by_correlation on runs (namespace, correlation_id, run_id) where correlation_id is not null;

create table events (
    id        integer primary key,
    namespace text not null,
    run_id    text not null,
    seq       integer not null,
    kind      text not null,
    place     text not null,
    at        integer not null,
    body      text,
    unique (run_id, seq)
);

-- What is too large for its row: the body of the event with this number.
create table payloads (
    run_id    text not null,
    seq       integer not null,
    namespace text not null,
    body      text not null,
    unique (run_id, seq)
);

-- taken_by is the number of the event a message became; the row stays, so that a
-- message sent twice under one id is noticed for as long as the run is kept.
create table inbox (
    number     integer primary key autoincrement,
    namespace  text not null,
    run_id     text not null,
    message_id text not null,
    kind       text not null,
    body       text not null,
    at         integer not null,
    taken_by   integer,
    unique (run_id, message_id)
);
create index inbox_unread on inbox (run_id, number) where taken_by is null;

create table attempts (
    namespace text not null,
    run_id    text not null,
    place     text not null,
    attempt   integer not null,
    name      text not null,
    failure   text not null,
    at        integer not null,
    next_at   integer,
    primary key (run_id, place, attempt)
);

create table workers (
    worker_id   text primary key,
    namespace   text not null,
    epoch       integer not null,
    lease_until integer not null,
    queues      text not null,
    host        text not null,
    pid         integer not null,
    started_at  integer not null
);

create table perdure_schema (
    version integer not null
);
insert into perdure_schema (version) values (1);
