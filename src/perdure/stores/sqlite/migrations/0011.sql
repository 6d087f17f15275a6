-- 0011: namespaces have rows of their own, so that a name nobody made is told from one without runs.
-- Safe before the new code runs: old code knows nothing of the table and leaves it alone.

create table namespaces (
    namespace  text not null primary key,
    created_at integer not null
) without rowid;
insert into namespaces (namespace, created_at) select namespace, min(created_at) from runs group by namespace;
insert into namespaces (namespace, created_at)
select namespace, min(started_at) from workers where true group by namespace on conflict do nothing;
insert into namespaces (namespace, created_at) values ('main', unixepoch() * 1000) on conflict do nothing;
