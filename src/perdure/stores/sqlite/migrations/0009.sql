-- 0009: a worker says which workflows, and activities on queues, it has code for.
-- Safe before the new code runs: the column may be empty, and old code ignores it.

alter table workers add column workflows text;
