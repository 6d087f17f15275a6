-- What every database is asked of bodies that are too large for their rows, with the types of parameters that are not text.
-- `at_once(…)` is ripe at once: the turn of this statement, or on Postgres the time given.

-- payloads_of_events: the bodies of these runs' first events that are too large for their rows.
select run_id, seq, body
  from payloads
 where run_id in (select value from json_each(:run_ids::text[]))
   and seq > 1
   and seq <= :most::bigint;

-- payloads_of: the bodies too large for their rows; an input is that of event 1, an outcome that of the last one.
select payloads.run_id, payloads.seq, payloads.body
  from payloads
  join runs on runs.run_id = payloads.run_id
 where payloads.run_id in (select value from json_each(:run_ids::text[]))
   and (payloads.seq = 1 or payloads.seq = runs.last_seq);
