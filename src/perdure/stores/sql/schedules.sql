-- What every database is asked of schedules, with the types of parameters that are not text.
-- Beside each stands whether a run of it is open.

-- insert_schedule: a new one; nothing when its name is taken.
insert into schedules (schedule_id, namespace, name, revision, source, next_at, waits, body)
values (:schedule_id, :namespace, :name, 1, :source, :next_at::bigint, :waits::bigint, :body)
    on conflict do nothing;

-- delete_schedule: one that is as it was read.
delete from schedules
 where schedule_id = :schedule_id
   and revision = :revision::bigint;

-- schedule: one of them.
select schedules.*,
       case when exists (select 1 from runs where runs.namespace = schedules.namespace and runs.schedule = schedules.name and runs.closed_at is null) then 1 else 0 end as open_runs
  from schedules
 where namespace = :namespace
   and name = :name;

-- schedules: those of a namespace after a name.
select schedules.*,
       case when exists (select 1 from runs where runs.namespace = schedules.namespace and runs.schedule = schedules.name and runs.closed_at is null) then 1 else 0 end as open_runs
  from schedules
 where namespace = :namespace
   and name > :after
 order by name
 limit :limit::bigint;

-- declared_schedules: those that come with code.
select schedules.*, 0 as open_runs
  from schedules
 where namespace = :namespace
   and source = 'code'
 order by name;

-- due_schedules: those that are to be looked at by now.
select schedules.*,
       case when exists (select 1 from runs where runs.namespace = schedules.namespace and runs.schedule = schedules.name and runs.closed_at is null) then 1 else 0 end as open_runs
  from schedules
 where namespace = :namespace
   and next_at <= :now::bigint
 order by next_at, schedule_id
 limit :limit::bigint;

-- waiting_schedules: those of which something waits, after a name; all of them, or those without an open run.
select schedules.*,
       case when exists (select 1 from runs where runs.namespace = schedules.namespace and runs.schedule = schedules.name and runs.closed_at is null) then 1 else 0 end as open_runs
  from schedules
 where namespace = :namespace
   and waits = 1
   and name > :after
   and (:all::boolean or not exists (select 1 from runs where runs.namespace = schedules.namespace and runs.schedule = schedules.name and runs.closed_at is null))
 order by name
 limit :limit::bigint;

-- next_schedule: when the next one is to be looked at, and whether something waits for the end of runs.
select (select min(next_at) from schedules where namespace = :namespace and next_at is not null),
       (select count(*) from (select 1 from schedules where namespace = :namespace and waits = 1 limit 1) as waiting);

-- runs_of_ids: which of these ids have runs, and which those are.
select workflow_id, run_id
  from runs
 where namespace = :namespace
   and workflow_id in (select value from json_each(:workflow_ids::text[]))
   and is_latest;
