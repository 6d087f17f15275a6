-- 0014: keys that callers of a server show.
-- Safe before the new code runs: old code knows nothing of the new table.

-- access_keys: who may do what; of the key itself only its hash. Lists are JSON; an empty one means every one.
create table access_keys (
    key_id       text not null primary key,
    hash         text not null,
    label        text not null,
    scopes       text not null,
    namespaces   text not null,
    queues       text not null,
    entity_id    text,
    created_at   integer not null,
    expires_at   integer,
    last_used_at integer,
    revoked_at   integer
) without rowid;
