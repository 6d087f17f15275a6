-- What Postgres is asked of events in its own way: rows come as JSON, others write at the same time, and a row
-- that another transaction holds is left for the next look.

-- append_events: facts for runs this worker owns.
insert into events (namespace, run_id, seq, kind, place, at, body)
select r ->> 0, r ->> 1, (r ->> 2)::bigint, r ->> 3, r ->> 4, (r ->> 5)::bigint, r ->> 6
  from jsonb_array_elements(:rows::jsonb) as r;

-- events_of: the first events of these runs, without what is too large for a row: as JSON, together with others, that
-- would take ten times as long, and with many large histories longer than an answer may take.
select run_id, seq, kind, place, at, body
  from events
 where run_id in (select value from json_each(:run_ids::text[]))
   and seq <= :most::bigint
 order by run_id, seq;

-- copy_events: the events that a run has from another one, some with other numbers.
insert into events (namespace, run_id, seq, kind, place, at, body)
select namespace, r ->> 1, seq - (r ->> 4)::bigint, kind, place, at, body
  from jsonb_array_elements(:rows::jsonb) as r
  join events on run_id = r ->> 0 and seq between (r ->> 2)::bigint and (r ->> 3)::bigint
 order by seq;
