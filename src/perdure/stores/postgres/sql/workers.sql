-- What Postgres is asked of workers in its own way: rows come as JSON, others write at the same time, and a row
-- that another transaction holds is left for the next look.

-- fence: does this worker still hold this epoch? It keeps it for as long as this transaction lasts.
select 1
  from workers
 where worker_id = :worker_id
   and epoch = :epoch::bigint
   for key share;

-- check_fences: those of these workers that still hold their epochs, for as long as this transaction lasts.
select worker_id, epoch
  from workers, jsonb_array_elements(:rows::jsonb) as r
 where worker_id = r ->> 0
   and epoch = (r ->> 1)::bigint
 order by worker_id
   for key share of workers;

-- raise_own_epoch: fence out whatever this worker itself still has under way; it is waited for.
with fenced as materialized (
    select worker_id
      from workers
     where worker_id = :worker_id
       and epoch = :epoch::bigint
       for update
)
update workers
   set epoch = epoch + 1
  from fenced
 where workers.worker_id = fenced.worker_id;

-- raise_epoch: fence out whatever another worker still has under way, if it has not stirred since.
-- One that is just writing is alive, or its connection will be ended; it is left for the next look.
with fenced as materialized (
    select worker_id
      from workers
     where worker_id = :worker_id
       and epoch = :epoch::bigint
       and lease_until = :lease_until::bigint
       for update skip locked
)
update workers
   set epoch = epoch + 1
  from fenced
 where workers.worker_id = fenced.worker_id;

-- renew_worker: the worker is alive; the time is the server's, in microseconds.
update workers
   set lease_until = :lease_until::bigint
 where worker_id = :worker_id
   and epoch = :epoch::bigint
returning (extract(epoch from clock_timestamp()) * 1000000)::bigint;

-- judge_worker: once for each worker that is lost, it is looked whether one of its runs is to blame.
update workers
   set judged_at = :now::bigint
 where worker_id = :worker_id
   and judged_at is null
returning host, pid;
