-- 0004: a run's inbox has a limit, and whoever finds it full has counted.
-- Safe before the new code runs: old code ignores the column.
-- messages_read: how many of its messages the run had read when its inbox was last counted, at least.

alter table {schema}.runs add column messages_read bigint not null default 0;
