-- What every database is asked of events that a sink did not take, with the types of parameters that are not text.

-- bury_event: one becomes a dead letter.
insert into dead_letters (n, sink_id, run_id, workflow_id, workflow, type, number, at, step, held, attributes, attempts, error, died_at)
select n, sink_id, run_id, workflow_id, workflow, type, number, at, step, held, attributes, :attempts::bigint, :error, :at::bigint
  from outbox
 where sink_id = :sink_id
   and n = :n::bigint;

-- dead_letters: those of a sink, the oldest first.
select n, dead_letters.run_id, dead_letters.workflow_id, dead_letters.workflow, type, number, at, dead_letters.step, dead_letters.held, dead_letters.attributes, attempts, null as next_at, runs.entity_id, runs.correlation_id, runs.parent_id, null as previous, error, died_at
  from dead_letters
  left join runs on runs.run_id = dead_letters.run_id
 where sink_id = :sink_id
   and n > :after::bigint
 order by n
 limit :limit::bigint;

-- revive_letters: deliver these after all.
insert into outbox (sink_id, run_id, workflow_id, workflow, type, number, at, step, held, attributes, attempts, next_at)
select sink_id, run_id, workflow_id, workflow, type, number, at, step, held, attributes, 0, 0
  from dead_letters
 where sink_id = :sink_id
   and n in (select value from json_each(:numbers::bigint[]))
 order by n;

-- delete_letters: these are none any more.
delete from dead_letters where sink_id = :sink_id and n in (select value from json_each(:numbers::bigint[]));

-- purge_letters: some of those of a sink.
delete from dead_letters
 where n in (select n from dead_letters where sink_id = :sink_id order by n limit :limit::bigint);
