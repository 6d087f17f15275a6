-- 0023: workers that work over a server, and the deadlines of the attempts they make.
-- Safe before the new code runs: such a worker has no lock, and old code judges it by its lease.
alter table workers add column remote integer not null default 0;
create table attempt_deadlines (
    run_id       text primary key,
    namespace    text not null,
    worker_id    text not null,
    attempt      integer not null,
    begun_at     integer not null,
    ends_at      integer not null,
    heartbeat_ms integer,
    due_at       integer not null
) without rowid;
create index attempt_deadlines_due on attempt_deadlines (due_at);
