-- 0006: what is ripe at once has a turn instead of a time, and no clock is asked for it.
-- Processes of the version before this are to be stopped first: their claims name indexes that change here.
-- wake_at: a time for what sleeps; below zero the turn of what is ripe, which rises from commit to commit.

drop index runs_ripe;
drop index runs_waking;

-- Runs that were to go on at once may have a time to come, of a clock that was ahead. In the order of their times.
update runs
   set wake_at = wake_at - 4000000000000000000
 where owner is null
   and closed_at is null
   and typeof(wake_at) = 'integer'
   and wake_at >= 0
   and (
         (status = 'PENDING' and (delayed_until is null or begun_at is not null or wake_at <> delayed_until))
         or exists (
              select 1
                from inbox
               where inbox.run_id = runs.run_id
                 and inbox.taken_by is null
                 and inbox.at = runs.wake_at
            )
       );

-- What is ripe, in the order of claims: of a queue, and of each workflow in it. Most of a queue may be somebody else's.
create index runs_ripe on runs (queue, priority desc, wake_at)
    where owner is null and wake_at < 0 and losses < 2;
create index runs_ripe_by_workflow on runs (queue, namespace, workflow, priority desc, wake_at)
    where owner is null and wake_at < 0 and losses < 2;
-- What sleeps, by the time it wakes at: of a queue, and of each workflow in it. Priorities matter once it is ripe.
create index runs_sleeping on runs (queue, wake_at)
    where owner is null and wake_at >= 0 and losses < 2;
create index runs_waking on runs (queue, namespace, workflow, wake_at)
    where owner is null and wake_at >= 0 and losses < 2;
-- The last turn that was given is the highest one.
create index runs_in_turn on runs (wake_at) where owner is null and wake_at < 0;
