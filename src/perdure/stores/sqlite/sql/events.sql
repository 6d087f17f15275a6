-- What SQLite is asked of events in its own way. `:rows` becomes as many rows of parameters as the batch has;
-- unused ones are null and skipped. `at_once(…)` is ripe at once: the turn of this statement.
-- A time that has come by the clock of who writes it means at once: that clock may be ahead of all others.

-- append_events: facts for runs this worker owns.
insert into events (namespace, run_id, seq, kind, place, at, body)
select column1, column2, column3, column4, column5, column6, column7
  from (values :rows)
 where column1 is not null;

-- events_of: the first events of these runs.
select events.run_id, events.seq, events.kind, events.place, events.at, coalesce(events.body, payloads.body) as body
  from events
  left join payloads on payloads.run_id = events.run_id and payloads.seq = events.seq
 where events.run_id in (select value from json_each(:run_ids))
   and events.seq <= :most
 order by events.run_id, events.seq;

-- copy_events: the events that a run has from another one, some with other numbers.
insert into events (namespace, run_id, seq, kind, place, at, body)
select events.namespace, kept.column2, events.seq - kept.column5, events.kind, events.place, events.at, events.body
  from (values :rows) as kept
 cross join events on events.run_id = kept.column1 and events.seq between kept.column3 and kept.column4
 order by events.seq;
