-- What Postgres is asked of the decisions of schedules in its own way: rows come as JSON.

-- note_decisions: decisions in their slots; a newer one that is in the same slot by now stays.
insert into schedule_decisions (schedule_id, slot, number, time, kind, times, run_id)
select r ->> 0, (r ->> 1)::bigint, (r ->> 2)::bigint, (r ->> 3)::bigint, r ->> 4, (r ->> 5)::bigint, r ->> 6
  from jsonb_array_elements(:rows::jsonb) as r
    on conflict (schedule_id, slot) do update
   set number = excluded.number,
       time = excluded.time,
       kind = excluded.kind,
       times = excluded.times,
       run_id = excluded.run_id
 where schedule_decisions.number <= excluded.number;
