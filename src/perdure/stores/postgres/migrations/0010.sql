-- 0010: keys that callers of a server show.
-- Safe before the new code runs: old code knows nothing of the new table.

-- access_keys: who may do what; of the key itself only its hash. Lists are JSON; an empty one means every one.
create table {schema}.access_keys (
    key_id       text collate "C" not null,
    hash         text collate "C" not null,
    label        text collate "C" not null,
    scopes       text collate "C" not null,
    namespaces   text collate "C" not null,
    queues       text collate "C" not null,
    entity_id    text collate "C",
    created_at   bigint not null,
    expires_at   bigint,
    last_used_at bigint,
    revoked_at   bigint,
    constraint access_keys_key primary key (key_id)
);
