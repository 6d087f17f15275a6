-- What Postgres is asked of attempts that remote workers make: rows come as JSON.

-- expect_deadlines: those of these attempts that are under way, and due at a time, if one is given.
-- They stay so for as long as this transaction lasts.
select run_id, worker_id, attempt, (r ->> 3)::bigint
  from attempt_deadlines, jsonb_array_elements(:rows::jsonb) as r
 where run_id = r ->> 0
   and worker_id = r ->> 1
   and attempt = (r ->> 2)::bigint
   and (r ->> 3 is null or due_at = (r ->> 3)::bigint)
 order by run_id
   for no key update of attempt_deadlines;

-- note_deadlines: attempts that have begun, or have shown that they go on; of two of one task the last.
insert into attempt_deadlines (run_id, namespace, worker_id, attempt, begun_at, ends_at, heartbeat_ms, due_at)
select distinct on (r.row ->> 0)
       r.row ->> 0,
       r.row ->> 1,
       r.row ->> 2,
       (r.row ->> 3)::bigint,
       (r.row ->> 4)::bigint,
       (r.row ->> 5)::bigint,
       (r.row ->> 6)::bigint,
       (r.row ->> 7)::bigint
  from jsonb_array_elements(:rows::jsonb) with ordinality as r (row, n)
 order by r.row ->> 0, r.n desc
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
 where run_id in (select r ->> 0 from jsonb_array_elements(:rows::jsonb) as r);
