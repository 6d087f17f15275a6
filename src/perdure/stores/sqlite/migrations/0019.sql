-- 0019: idempotency keys: what a command was asked for under a key, and what it was answered.
-- Safe before the new code runs: old code does not know the table.

-- idempotency_keys: a command of a namespace under a key; `answer` is null while it is under way,
-- and from `stale_at` on it may be taken over. `reply` is what a server has answered.
create table idempotency_keys (
    namespace  text not null,
    command    text not null,
    key        text not null,
    digest     text not null,
    holder     text not null,
    answer     text,
    reply      text,
    taken_at   integer not null,
    stale_at   integer not null,
    keep_until integer not null,
    primary key (namespace, command, key)
) without rowid;

-- What is not kept any more, the oldest first.
create index idempotency_keys_kept on idempotency_keys (keep_until);
