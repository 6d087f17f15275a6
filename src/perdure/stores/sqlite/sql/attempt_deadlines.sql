-- What SQLite is asked of attempts that remote workers make. `:rows` becomes as many rows of parameters as the batch
-- has; unused ones are null and skipped.

-- expect_deadlines: those of these attempts that are under way, and due at a time, if one is given.
select run_id, worker_id, attempt, expected.column4
  from attempt_deadlines, (values :rows) as expected
 where run_id = expected.column1
   and worker_id = expected.column2
   and attempt = expected.column3
   and (expected.column4 is null or due_at = expected.column4);

-- note_deadlines: attempts that have begun, or have shown that they go on.
insert into attempt_deadlines (run_id, namespace, worker_id, attempt, begun_at, ends_at, heartbeat_ms, due_at)
select column1, column2, column3, column4, column5, column6, column7, column8
  from (values :rows)
 where column1 is not null
    on conflict (run_id) do update
       set namespace = excluded.namespace,
           worker_id = excluded.worker_id,
           attempt = excluded.attempt,
           begun_at = excluded.begun_at,
           ends_at = excluded.ends_at,
           heartbeat_ms = excluded.heartbeat_ms,
           due_at = excluded.due_at;

-- forget_deadlines: attempts that are over.
delete from attempt_deadlines
 where run_id in (values :rows);
