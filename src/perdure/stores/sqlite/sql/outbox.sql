-- What SQLite is asked of events for sinks in its own way. `:rows` becomes as many rows of parameters as the batch has;
-- unused ones are null and skipped.

-- queue_events: what sinks are to be told of runs, each that wants it; in the order in which it is given.
insert into outbox (sink_id, run_id, workflow_id, workflow, type, number, at, step, held, attributes, attempts, next_at)
select sinks.sink_id, runs.run_id, runs.workflow_id, runs.workflow, told.column3, coalesce(told.column4, runs.last_seq, (select max(seq) from events where events.run_id = runs.run_id), 1), coalesce(told.column5, runs.closed_at), coalesce(told.column6, runs.step), case when told.column3 = 'run.held' then runs.held end, runs.attributes, 0, 0
  from (values :rows) as told
 cross join runs on runs.run_id = told.column1
 cross join sinks on sinks.namespace = runs.namespace
 where sinks.types & told.column2 <> 0
   and sinks.behind_at is null
   and (told.column7 is null or runs.status = told.column7)
   and (told.column3 <> 'run.started' or runs.created_at = told.column5)
   and not (runs.workflow >= 'task:' and runs.workflow < 'task;')
   and (sinks.workflows is null or runs.workflow in (select value from json_each(sinks.workflows)));

-- queue_decisions: what sinks are to be told of schedules.
insert into outbox (sink_id, run_id, workflow_id, workflow, type, number, at, attributes, attempts, next_at)
select sinks.sink_id, schedules.schedule_id, schedules.name, json_extract(schedules.body, '$.call.workflow'), told.column3, told.column4, told.column5, told.column6, 0, 0
  from (values :rows) as told
 cross join schedules on schedules.schedule_id = told.column1
 cross join sinks on sinks.namespace = schedules.namespace
 where sinks.types & told.column2 <> 0
   and sinks.behind_at is null
   and (sinks.workflows is null or json_extract(schedules.body, '$.call.workflow') in (select value from json_each(sinks.workflows)));
