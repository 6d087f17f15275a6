-- What SQLite is asked of calls under way in its own way. `:rows` becomes as many rows of parameters as the batch has;
-- unused ones are null and skipped.

-- begin_attempts: attempts that are the only ones of their calls, and begin now.
insert into progress (namespace, run_id, place, begun_at)
select column1, column2, column3, column4
  from (values :rows)
 where column1 is not null
    on conflict (run_id, place) do update
   set begun_at = excluded.begun_at;

-- record_beats: the newest details of heartbeats, one for each call.
insert into progress (namespace, run_id, place, details, beat_at)
select column1, column2, column3, column4, column5
  from (values :rows)
 where column1 is not null
    on conflict (run_id, place) do update
   set details = excluded.details,
       beat_at = excluded.beat_at;
