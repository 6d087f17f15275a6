-- What every database is asked of events that wait for sinks, with the types of parameters that are not text.
-- `previous` is the event before it of the same run, if that waits, too.

-- next_event: when the next event of a sink is due, 0 for at once.
select min(next_at) from outbox where sink_id = :sink_id and next_at is not null;

-- fresh_events: those that were not tried yet, the oldest first; asked as a range, so that what waits for other sinks is
-- not walked through.
select n, outbox.run_id, outbox.workflow_id, outbox.workflow, type, number, at, outbox.step, outbox.held, outbox.attributes, attempts, next_at, runs.entity_id, runs.correlation_id, runs.parent_id,
       (select max(earlier.n) from outbox as earlier where earlier.sink_id = outbox.sink_id and earlier.run_id = outbox.run_id and earlier.n < outbox.n) as previous
  from outbox
  left join runs on runs.run_id = outbox.run_id
 where sink_id = :sink_id
   and next_at <= 0
 order by next_at, n
 limit :limit::bigint;

-- tried_events: those that are to be tried again by now.
select n, outbox.run_id, outbox.workflow_id, outbox.workflow, type, number, at, outbox.step, outbox.held, outbox.attributes, attempts, next_at, runs.entity_id, runs.correlation_id, runs.parent_id,
       (select max(earlier.n) from outbox as earlier where earlier.sink_id = outbox.sink_id and earlier.run_id = outbox.run_id and earlier.n < outbox.n) as previous
  from outbox
  left join runs on runs.run_id = outbox.run_id
 where sink_id = :sink_id
   and next_at > 0
   and next_at <= :now::bigint
 order by next_at, n
 limit :limit::bigint;

-- event_values: what the histories hold of these events.
select outbox.n,
       coalesce(events.body, payloads.body, case when outbox.number = 1 then runs.input when outbox.number = runs.last_seq then runs.outcome end) as body
  from outbox
  left join runs on runs.run_id = outbox.run_id
  left join events on events.run_id = outbox.run_id and events.seq = outbox.number
  left join payloads on payloads.run_id = outbox.run_id and payloads.seq = outbox.number
 where outbox.n in (select value from json_each(:numbers::bigint[]));

-- backlog: how many wait for a sink, since when, and how many it did not take.
select (select count(*) from outbox where sink_id = :sink_id) as waiting,
       (select min(at) from outbox where sink_id = :sink_id) as oldest,
       (select count(*) from dead_letters where sink_id = :sink_id) as dead;

-- delete_delivered: those that a sink has taken; by their numbers alone, or all that waits would be walked.
delete from outbox where n in (select value from json_each(:numbers::bigint[]));

-- retry_event: one that is tried again later.
update outbox
   set attempts = :attempts::bigint,
       next_at = :next_at::bigint,
       error = :error
 where sink_id = :sink_id
   and n = :n::bigint;

-- set_behind: these wait for earlier ones of their runs.
update outbox
   set next_at = null
 where n in (select value from json_each(:numbers::bigint[]));

-- free_next: of these runs, the first that waits for no other one any more.
update outbox
   set next_at = 0
 where next_at is null
   and n in (
         select min(n)
           from outbox
          where sink_id = :sink_id
            and run_id in (select value from json_each(:runs::text[]))
          group by run_id
       );

-- queue_event: an event that is no run's.
insert into outbox (sink_id, run_id, type, number, at, attributes, attempts, next_at)
values (:sink_id, '', :type, 0, :at::bigint, :body, 0, 0);

-- purge_outbox: some of what waits for a sink.
delete from outbox
 where n in (select n from outbox where sink_id = :sink_id order by run_id, n limit :limit::bigint);

-- runs_to_resend: the next runs that were open in a time.
select run_id
  from runs
 where namespace = :namespace
   and run_id > :after
   and created_at <= :until::bigint
   and (closed_at is null or closed_at >= :since::bigint)
   and not (workflow >= 'task:' and workflow < 'task;')
 order by run_id
 limit :limit::bigint;

-- resend_events: the events of runs, made anew from what their histories hold.
insert into outbox (sink_id, run_id, workflow_id, workflow, type, number, at, step, attributes, attempts, next_at)
select :sink_id, run_id, workflow_id, workflow, type, number, at, step, attributes, 0, 0
  from (
         select run_id, workflow_id, workflow, 'run.started' as type, 1 as number, created_at as at, null as step, initial_attributes as attributes
           from runs
          where run_id in (select value from json_each(:runs::text[]))
          union all
         select runs.run_id, runs.workflow_id, runs.workflow, case when events.kind in ('ActivityCompleted', 'ChildCompleted') then 'step.completed' else 'step.failed' end, events.seq, events.at, events.place, runs.attributes
           from events
           join runs on runs.run_id = events.run_id
           left join payloads on events.body is null and payloads.run_id = events.run_id and payloads.seq = events.seq
          where events.run_id in (select value from json_each(:runs::text[]))
            and (
                  events.kind in ('ActivityCompleted', 'ActivityFailed')
               or (
                    events.kind in ('ChildCompleted', 'ChildFailed')
                and substr(coalesce(events.body, payloads.body), 1, 18) = '{"workflow":"task:'
                  )
                )
            and events.seq > coalesce(runs.forked_at, 0)
          union all
         select run_id, workflow_id, workflow, 'run.' || lower(status), last_seq, closed_at, step, attributes
           from runs
          where run_id in (select value from json_each(:runs::text[]))
            and closed_at is not null
       ) as told
 where at >= :since::bigint
   and at <= :until::bigint
   and type in (select value from json_each(:types::text[]))
   and (:all_workflows::boolean or workflow in (select value from json_each(:workflows::text[])))
 order by run_id, number;
