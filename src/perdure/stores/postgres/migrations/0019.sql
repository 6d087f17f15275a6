-- 0019: workers that work over a server, and the deadlines of the attempts they make.
-- To workers of the code before, one without a lock is dead: their epochs are raised, and they cannot register again.
alter table {schema}.workers add column remote bigint not null default 0;
alter table {schema}.workers alter column remote drop default;
update {schema}.workers set epoch = epoch + 1;
create table {schema}.attempt_deadlines (
    run_id       text not null,
    namespace    text not null,
    worker_id    text not null,
    attempt      bigint not null,
    begun_at     bigint not null,
    ends_at      bigint not null,
    heartbeat_ms bigint,
    due_at       bigint not null,
    constraint attempt_deadlines_key primary key (run_id)
);
create index attempt_deadlines_due on {schema}.attempt_deadlines (due_at);
