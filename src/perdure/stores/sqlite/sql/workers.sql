-- What SQLite is asked of workers in its own way. `:rows` becomes as many rows of parameters as the batch has;
-- unused ones are null and skipped. `at_once(…)` is ripe at once: the turn of this statement.
-- A time that has come by the clock of who writes it means at once: that clock may be ahead of all others.

-- fence: does this worker still hold this epoch? And does anybody listen for what it is about to write?
select exists (select 1 from listeners)
  from workers
 where worker_id = :worker_id
   and epoch = :epoch;

-- check_fences: those of these workers that still hold their epochs.
select worker_id, epoch
  from workers, (values :rows) as fence
 where worker_id = fence.column1
   and epoch = fence.column2;

-- renew_worker: the worker is alive.
update workers
   set lease_until = :lease_until
 where worker_id = :worker_id
   and epoch = :epoch;

-- raise_own_epoch: fence out whatever this worker itself still has under way.
update workers
   set epoch = epoch + 1
 where worker_id = :worker_id
   and epoch = :epoch;

-- raise_epoch: fence out whatever another worker still has under way, if it has not stirred since.
update workers
   set epoch = epoch + 1
 where worker_id = :worker_id
   and epoch = :epoch
   and lease_until = :lease_until;

-- judge_worker: once for each worker that is lost, it is looked whether one of its runs is to blame.
update workers
   set judged_at = :now
 where worker_id = :worker_id
   and judged_at is null
returning cast(host as blob), cast(pid as integer);
