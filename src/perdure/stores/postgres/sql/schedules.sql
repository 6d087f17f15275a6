-- What Postgres is asked of schedules in its own way: rows come as JSON.

-- move_schedules: schedules as they are now, if they are as they were read.
update schedules
   set revision = revision + 1,
       next_at = (r ->> 2)::bigint,
       waits = (r ->> 3)::bigint,
       body = r ->> 4
  from jsonb_array_elements(:rows::jsonb) as r
 where schedule_id = r ->> 0
   and revision = (r ->> 1)::bigint
returning schedule_id;
