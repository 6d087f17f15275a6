-- 0015: idempotency keys: what a command was asked for under a key, and what it was answered.
-- Safe before the new code runs: old code does not know the table.

-- idempotency_keys: a command of a namespace under a key; `answer` is null while it is under way,
-- and from `stale_at` on it may be taken over. `reply` is what a server has answered.
create table {schema}.idempotency_keys (
    namespace  text collate "C" not null,
    command    text collate "C" not null,
    key        text collate "C" not null,
    digest     text collate "C" not null,
    holder     text collate "C" not null,
    answer     text collate "C",
    reply      text collate "C",
    taken_at   bigint not null,
    stale_at   bigint not null,
    keep_until bigint not null,
    constraint idempotency_keys_key primary key (namespace, command, key)
);

-- What is not kept any more, the oldest first.
create index idempotency_keys_kept on {schema}.idempotency_keys (keep_until);
