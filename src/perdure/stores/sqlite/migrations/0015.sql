-- 0015: those who follow runs as they change.
-- Safe before the new code runs: old code knows nothing of the new tables and leaves them alone. What it writes is in
-- no log: whoever follows runs while old workers are at work sees their changes late, or not at all.

-- listeners: what is written only while somebody wants it, and until when. What is kept for that is whole `since` a
-- position, and from `later` on when it is told so next.
create table listeners (
    name     text not null primary key,
    until    integer not null,
    since    text not null,
    later    text not null,
    later_at integer not null
) without rowid;

-- changes: which runs have changed; here each change is a transaction of its own.
create table changes (
    transaction_id integer primary key autoincrement,
    run_id         text not null
);
