-- 0004: held runs and the next ones to wake are found without a walk over all that are parked.
-- Safe before the new code runs: old code does not name these indexes.

create index runs_held on runs (held) where held is not null;
create index runs_waking on runs (queue, priority desc, namespace, workflow, wake_at)
    where owner is null and wake_at is not null and losses < 2;
