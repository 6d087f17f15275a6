-- 0020: workflows that workers have announced, so that a server without code can check and start them.
-- Safe before the new code runs: old code does not know the table.

-- announced_workflows: `body` is JSON, `digest` tells whether it has changed.
create table announced_workflows (
    namespace    text not null,
    name         text not null,
    body         text not null,
    digest       text not null,
    announced_at integer not null,
    primary key (namespace, name)
) without rowid;
