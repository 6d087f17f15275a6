-- 0011: those who follow runs as they change.
-- Safe before the new code runs: old code knows nothing of the new tables and leaves them alone. What it writes is in
-- no log: whoever follows runs while old workers are at work sees their changes late, or not at all.

-- listeners: what is written only while somebody wants it, and until when. What is kept for that is whole `since` a
-- position, and from `later` on when it is told so next.
create table {schema}.listeners (
    name     text collate "C" not null,
    until    bigint not null,
    since    text collate "C" not null,
    later    text collate "C" not null,
    later_at bigint not null,
    constraint listeners_key primary key (name)
) with (fillfactor = 50);

-- changes: which runs have changed, by the transaction that did it.
create table {schema}.changes (
    transaction_id bigint not null,
    run_id         text collate "C" not null,
    constraint changes_key primary key (transaction_id, run_id)
) with (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_insert_scale_factor = 0.1);
