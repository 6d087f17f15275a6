-- 0016: workflows that workers have announced, so that a server without code can check and start them.
-- Safe before the new code runs: old code does not know the table.

-- announced_workflows: `body` is JSON, `digest` tells whether it has changed.
create table {schema}.announced_workflows (
    namespace    text collate "C" not null,
    name         text collate "C" not null,
    body         text collate "C" not null,
    digest       text collate "C" not null,
    announced_at bigint not null,
    constraint announced_workflows_key primary key (namespace, name)
);
