-- What every database is asked of calls under way: that their only attempt has begun, and how far they say they are.

-- progress_of: what is known of the calls of several runs.
select run_id, place, begun_at, details, beat_at
  from progress
 where run_id in (select value from json_each(:run_ids::text[]))
 order by run_id, place;
