-- What every database is asked of attempts that remote workers make, with the types of parameters that are not text.

-- due_deadlines: those whose time has come, the longest due first.
select run_id, namespace, worker_id, attempt, begun_at, ends_at, heartbeat_ms, due_at
  from attempt_deadlines
 where due_at <= :now::bigint
 order by due_at, run_id
 limit :limit::bigint;

-- next_deadline: when the next one comes.
select min(due_at) from attempt_deadlines;

-- deadline_of: that of one task.
select run_id, namespace, worker_id, attempt, begun_at, ends_at, heartbeat_ms, due_at
  from attempt_deadlines
 where run_id = :run_id;
