-- 0013: a run can be a retry or a fork of another one, and has its past from that.
-- Safe before the new code runs: every column may be empty and old code ignores it.
-- forked_from, forked_at: the run that the events up to this number are from; forked_to: the newest that has them from
-- this run. fork_kind is retry or fork. first_at: the time of event 1, where that is older than the run itself.

alter table runs add column forked_from text;
alter table runs add column forked_at integer;
alter table runs add column forked_to text;
alter table runs add column fork_kind text;
alter table runs add column fork_reason text;
alter table runs add column first_at integer;
