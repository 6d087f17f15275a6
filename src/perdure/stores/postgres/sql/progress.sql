-- What Postgres is asked of calls under way in its own way: rows come as JSON.

-- begin_attempts: attempts that are the only ones of their calls, and begin now.
insert into progress (namespace, run_id, place, begun_at)
select r ->> 0, r ->> 1, r ->> 2, (r ->> 3)::bigint
  from jsonb_array_elements(:rows::jsonb) as r
    on conflict (run_id, place) do update
   set begun_at = excluded.begun_at;

-- record_beats: the newest details of heartbeats, one for each call.
insert into progress (namespace, run_id, place, details, beat_at)
select r ->> 0, r ->> 1, r ->> 2, r ->> 3, (r ->> 4)::bigint
  from jsonb_array_elements(:rows::jsonb) as r
    on conflict (run_id, place) do update
   set details = excluded.details,
       beat_at = excluded.beat_at;
