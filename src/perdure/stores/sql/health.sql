-- version: which schema the file has.
select version from perdure_schema;

-- workers: all workers, with how many open runs each owns.
select workers.*,
       (select count(*) from runs where owner = worker_id and closed_at is null) as runs
  from workers
 order by started_at, worker_id;

-- open_runs: how many runs have not ended, and how many of them are held.
select count(*), count(held) from runs where closed_at is null;

-- due_runs: runs that a worker should have taken, and since when; those that have a turn since they were last written to.
select count(*),
       min(case
             when wake_at >= 0 then wake_at
             else greatest(updated_at, coalesce((select max(at) from inbox where inbox.run_id = runs.run_id and taken_by is null), 0))
           end)
  from runs
 where owner is null
   and closed_at is null
   and held is null
   and wake_at <= :now::bigint;

-- due_kinds: where those lie and what code they want, how many, and how many for longer than a minute; the most first.
select namespace, queue, workflow, count(*) as runs,
       sum(case
             when greatest(wake_at, updated_at, coalesce((select max(at) from inbox where inbox.run_id = runs.run_id and taken_by is null), 0)) <= :now::bigint - 60000
             then 1
             else 0
           end) as late
  from runs
 where owner is null
   and closed_at is null
   and held is null
   and wake_at <= :now::bigint
 group by namespace, queue, workflow
 order by runs desc, namespace, queue, workflow;

-- last_written: the newest times in the file.
select greatest(coalesce((select at from events order by id desc limit 1), 0),
                coalesce((select updated_at from runs order by run_id desc limit 1), 0),
                coalesce((select max(greatest(created_at, updated_at)) from runs where closed_at is null), 0));

-- written_ahead: the open runs that were written after a time, those written last first, and how many there are.
select workflow_id, count(*) over () as runs
  from runs
 where closed_at is null
   and greatest(created_at, updated_at) > :now::bigint
 order by greatest(created_at, updated_at) desc, run_id
 limit 3;

-- duties: what one worker of a namespace does for all, and whether that worker has a row.
select namespace, name, holder, since, last_ok_at, last_error,
       exists (select 1 from workers where workers.worker_id = duties.holder) as is_held
  from duties
 order by namespace, name;

-- schedules: those that have times ahead; so many are looked at.
select namespace, name, source, body
  from schedules
 where next_at is not null
 order by namespace, next_at
 limit 1000;
