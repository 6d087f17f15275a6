-- What every database is asked of events, with the types of parameters that are not text.
-- `at_once(…)` is ripe at once: the turn of this statement, or on Postgres the time given.

-- ended_places: which of these places in a run have an outcome.
select place
  from events
 where run_id = :run_id
   and place in (select value from json_each(:places::text[]));

-- last_recorded: a run's last event.
select seq, kind, place from events where run_id = :run_id order by seq desc limit 1;

-- events: a run's events after a number.
select events.seq, events.kind, events.place, events.at, coalesce(events.body, payloads.body) as body
  from events
  left join payloads on payloads.run_id = events.run_id and payloads.seq = events.seq
 where events.run_id = :run_id
   and events.seq > :after::bigint
 order by events.seq
 limit :limit::bigint;

-- last_event: number and time of a run's last event.
select seq, at from events where run_id = :run_id order by seq desc limit 1;

-- standings: of these runs how many messages each has had, its last event, and whether it has unread messages.
select run_id,
       messages,
       (select max(seq) from events where events.run_id = runs.run_id) as seq,
       (select at from events where events.run_id = runs.run_id order by seq desc limit 1) as at,
       exists (select 1 from inbox where inbox.run_id = runs.run_id and taken_by is null) as has_unread
  from runs
 where run_id in (select value from json_each(:run_ids::text[]));

-- open_histories: which of these runs are open, and the number of the last event of each.
select run_id, coalesce((select max(seq) from events where events.run_id = runs.run_id), 1)
  from runs
 where run_id in (select value from json_each(:run_ids::text[]))
   and closed_at is null;
