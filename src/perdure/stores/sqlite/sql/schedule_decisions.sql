-- What SQLite is asked of the decisions of schedules in its own way. `:rows` becomes as many rows of parameters as the
-- batch has; unused ones are null and skipped.

-- note_decisions: decisions in their slots; a newer one that is in the same slot by now stays.
insert into schedule_decisions (schedule_id, slot, number, time, kind, times, run_id)
select column1, column2, column3, column4, column5, column6, column7
  from (values :rows)
 where column1 is not null
    on conflict (schedule_id, slot) do update
   set number = excluded.number,
       time = excluded.time,
       kind = excluded.kind,
       times = excluded.times,
       run_id = excluded.run_id
 where schedule_decisions.number <= excluded.number;
