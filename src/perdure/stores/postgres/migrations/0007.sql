-- 0007: namespaces have rows of their own, so that a name nobody made is told from one without runs.
-- Safe before the new code runs: old code knows nothing of the table and leaves it alone.

create table {schema}.namespaces (
    namespace  text collate "C" not null,
    created_at bigint not null,
    constraint namespaces_key primary key (namespace)
);
insert into {schema}.namespaces (namespace, created_at)
select namespace, min(created_at) from {schema}.runs group by namespace;
insert into {schema}.namespaces (namespace, created_at)
select namespace, min(started_at) from {schema}.workers group by namespace on conflict do nothing;
insert into {schema}.namespaces (namespace, created_at)
values ('main', (extract(epoch from clock_timestamp()) * 1000)::bigint) on conflict do nothing;
