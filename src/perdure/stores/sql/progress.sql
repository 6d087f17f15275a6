-- What every database is asked of calls under way: that their only attempt has begun, and how far they say they are.

-- progress_of: what is known of the calls of several runs.
select run_id, place, begun_at, details, beat_at
  from progress
 where run_id in (select value from json_each(:run_ids::text[]))
 order by run_id, place;

-- copy_begun: the only attempts that a run had begun and that never ended; a retry of it does not repeat them.
insert into progress (namespace, run_id, place, begun_at)
select namespace, :to_run_id, place, begun_at
  from progress
 where run_id = :run_id
   and begun_at is not null
   and not exists (select 1 from events where events.run_id = :run_id and events.place = progress.place);
