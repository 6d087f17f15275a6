-- What every database is asked of namespaces, with the types of parameters that are not text.

-- insert_namespace: a new namespace, unless there is one of this name.
insert into namespaces (namespace, created_at)
values (:namespace, :at::bigint)
    on conflict do nothing;

-- ensure_namespace: the namespace of a worker that begins; its row is kept from being deleted meanwhile.
insert into namespaces (namespace, created_at)
values (:namespace, :at::bigint)
    on conflict (namespace) do update set namespace = excluded.namespace;

-- delete_namespace: one that nothing is left in.
delete from namespaces
 where namespace = :namespace;

-- left_in_namespace: how many runs, up to a number, workers, schedules and sinks there are.
select (select count(*) from (select 1 from runs where namespace = :namespace limit :most::bigint) as counted),
       (select count(*) from workers where namespace = :namespace),
       (select count(*) from schedules where namespace = :namespace),
       (select count(*) from sinks where namespace = :namespace);

-- namespaces: all of them, by name.
select namespace, created_at from namespaces order by namespace;

-- runs_by_status: how many runs of each workflow have each status, each counted up to a number.
-- From one workflow to the next without what is between.
with recursive names (name) as (
    select (select workflow from runs where namespace = :namespace order by workflow, status limit 1)
    union all
    select (select workflow
              from runs
             where namespace = :namespace
               and workflow > names.name
             order by workflow, status
             limit 1)
      from names
     where name is not null
), counts (workflow, status, number) as (
    select names.name,
           states.column1,
           (select count(*)
              from (select 1
                      from runs
                     where namespace = :namespace
                       and workflow = names.name
                       and status = states.column1
                     limit :most::bigint) as counted)
      from names,
           (values ('PENDING'), ('RUNNING'), ('SUSPENDED'), ('COMPLETED'), ('FAILED'), ('CANCELLED'), ('TERMINATED'),
                   ('TIMED_OUT'), ('CONTINUED')) as states
     where names.name is not null
)
select workflow, status, number from counts where number > 0;

-- queues_of_open_runs: on which queues the newest open runs of a workflow are.
select distinct queue
  from (select queue
          from runs
         where namespace = :namespace
           and workflow = :workflow
           and status = :status
         order by run_id desc
         limit :most::bigint) as newest;
