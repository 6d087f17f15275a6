-- 0003: a run remembers the workers it was lost with, and a worker how long its lease is.
-- Processes of the version before this are to be stopped first: their claims name an index that changes here.
-- losses: how often in a row its worker was lost while it owned the run, without progress.
-- lost_mark: how far the run had come by then: number of its last event, plus number of its failed attempts.
-- outlived: how often, as a suspect, it outlived the time it was watched for.
-- deaths: the workers that died with it as their only suspect, as JSON.

alter table runs add column losses integer not null default 0;
alter table runs add column lost_mark integer;
alter table runs add column outlived integer not null default 0;
alter table runs add column deaths text;

-- Two losses make a suspect. Suspects are claimed one at a time, and must not lie in the way of all others.
drop index runs_ripe;
create index runs_ripe on runs (queue, priority desc, wake_at)
    where owner is null and wake_at is not null and losses < 2;
create index runs_suspected on runs (queue, priority desc, wake_at)
    where owner is null and wake_at is not null and losses >= 2;

-- judged_at: when it was looked, after the worker was lost, whether one of its runs is to blame.
alter table workers add column lease_ms integer;
alter table workers add column judged_at integer;
