-- What Postgres is asked of events for sinks in its own way: rows come as JSON.

-- queue_events: what sinks are to be told of runs, each that wants it; in the order in which it is given.
-- Each run is looked up by its key first: from the sink the planner would walk through all runs of its namespace.
insert into outbox (sink_id, run_id, workflow_id, workflow, type, number, at, step, held, attributes, attempts, next_at)
select sinks.sink_id, runs.run_id, runs.workflow_id, runs.workflow, r ->> 2, coalesce((r ->> 3)::bigint, runs.last_seq, (select max(seq) from events where events.run_id = runs.run_id), 1), coalesce((r ->> 4)::bigint, runs.closed_at), coalesce(r ->> 5, runs.step), case when r ->> 2 = 'run.held' then runs.held end, runs.attributes, 0, 0
  from jsonb_array_elements(:rows::jsonb) with ordinality as told (r, place)
  cross join lateral (select * from runs where run_id = r ->> 0 offset 0) as runs
  join sinks on sinks.namespace = runs.namespace
 where sinks.types & (r ->> 1)::bigint <> 0
   and sinks.behind_at is null
   and (r ->> 6 is null or runs.status = r ->> 6)
   and (r ->> 2 <> 'run.started' or runs.created_at = (r ->> 4)::bigint)
   and not (runs.workflow >= 'task:' and runs.workflow < 'task;')
   and (sinks.workflows is null or sinks.workflows::jsonb ? runs.workflow)
 order by place, sinks.sink_id;

-- queue_decisions: what sinks are to be told of schedules.
insert into outbox (sink_id, run_id, workflow_id, workflow, type, number, at, attributes, attempts, next_at)
select sinks.sink_id, schedules.schedule_id, schedules.name, schedules.body::jsonb -> 'call' ->> 'workflow', r ->> 2, (r ->> 3)::bigint, (r ->> 4)::bigint, r ->> 5, 0, 0
  from jsonb_array_elements(:rows::jsonb) with ordinality as told (r, place)
  cross join lateral (select * from schedules where schedule_id = r ->> 0 offset 0) as schedules
  join sinks on sinks.namespace = schedules.namespace
 where sinks.types & (r ->> 1)::bigint <> 0
   and sinks.behind_at is null
   and (sinks.workflows is null or sinks.workflows::jsonb ? (schedules.body::jsonb -> 'call' ->> 'workflow'))
 order by place, sinks.sink_id;
