-- What every database is asked of workers, with the types of parameters that are not text.
-- `at_once(…)` is ripe at once: the turn of this statement, or on Postgres the time given.

-- insert_worker: a worker begins, with epoch 1.
insert into workers (worker_id, namespace, epoch, lease_until, lease_ms, queues, host, pid, started_at, workflows, remote)
values (
    :worker_id, :namespace, 1, :lease_until::bigint, :lease_ms::bigint, :queues, :host, :pid::bigint, :now::bigint, :names,
    :remote::bigint
);

-- note_workflows: what a worker has code for by now.
update workers
   set workflows = :names
 where worker_id = :worker_id;

-- worker: one of them.
select * from workers where worker_id = :worker_id;

-- renew_remote_worker: a worker that works over a server is alive; its lease never gets shorter.
update workers
   set lease_until = case when lease_until >= :lease_until::bigint then lease_until + 1 else :lease_until::bigint end
 where worker_id = :worker_id
   and epoch = :epoch::bigint;

-- shorten_lease: a worker that works over a server may be gone; not when it has stirred since.
update workers
   set lease_until = :until::bigint
 where worker_id = :worker_id
   and epoch = :epoch::bigint
   and lease_until = :lease_until::bigint;

-- delete_worker: a worker that owns nothing any more.
delete from workers
 where worker_id = :worker_id
   and not exists (select 1 from runs where owner = :worker_id and closed_at is null);

-- workers: all workers.
select * from workers order by started_at, worker_id;
