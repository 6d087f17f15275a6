-- What Postgres is asked of runs in its own way: rows come as JSON, others write at the same time, and a row
-- that another transaction holds is left for the next look.

-- insert_runs: new runs; a taken workflow_id or run_id inserts nothing.
insert into runs (run_id, namespace, workflow_id, workflow, queue, status, owner, wake_at, priority, input, seed, created_at, updated_at, begun_at)
select r ->> 0, r ->> 1, r ->> 2, r ->> 3, r ->> 4, r ->> 5, r ->> 6, (r ->> 7)::bigint, (r ->> 8)::bigint, r ->> 9, (r ->> 10)::bigint, (r ->> 11)::bigint, (r ->> 11)::bigint, case when r ->> 6 is not null then (r ->> 11)::bigint end
  from jsonb_array_elements(:rows::jsonb) as r
    on conflict do nothing;

-- insert_rich_runs: the same for runs that have a parent, an entity, a deadline or the like.
insert into runs (run_id, namespace, workflow_id, workflow, queue, status, owner, wake_at, priority, input, seed, created_at, updated_at, begun_at, parent_id, parent_place, on_parent_close, entity_id, correlation_id, attributes, initial_attributes, timeout_ms, delayed_until, close_at, close_as, continued_from, schedule, scheduled_for)
select r ->> 0, r ->> 1, r ->> 2, r ->> 3, r ->> 4, r ->> 5, r ->> 6, (r ->> 7)::bigint, (r ->> 8)::bigint, r ->> 9, (r ->> 10)::bigint, (r ->> 11)::bigint, (r ->> 11)::bigint, case when r ->> 6 is not null then (r ->> 11)::bigint end, r ->> 12, r ->> 13, r ->> 14, r ->> 15, r ->> 16, r ->> 17, r ->> 17, (r ->> 18)::bigint, (r ->> 19)::bigint, (r ->> 20)::bigint, case when r ->> 20 is not null then 'TIMED_OUT' end, r ->> 21, r ->> 22, (r ->> 23)::bigint
  from jsonb_array_elements(:rows::jsonb) as r
    on conflict do nothing;

-- end_runs: close runs for ever.
update runs
   set status = r ->> 1,
       outcome = r ->> 2,
       last_seq = (r ->> 3)::bigint,
       updated_at = (r ->> 4)::bigint,
       closed_at = (r ->> 4)::bigint,
       owner = null,
       wake_at = null,
       waiting = null,
       undo = coalesce(r ->> 6, undo)
  from jsonb_array_elements(:rows::jsonb) as r
 where run_id = r ->> 0
   and owner = r ->> 5;

-- annotate_runs: what workflows say of themselves.
update runs
   set attributes = coalesce(r ->> 2, attributes),
       own_attributes = case when r ->> 2 is null then own_attributes else nullif(r ->> 7, r ->> 2) end,
       step = r ->> 3,
       waiting = null,
       updated_at = (r ->> 4)::bigint
  from jsonb_array_elements(:rows::jsonb) as r
 where run_id = r ->> 0
   and owner = r ->> 1
   and (r ->> 2 is null or coalesce(attributes, '') = coalesce(r ->> 6, ''))
returning run_id;

-- note_undos: what runs would have to undo.
update runs
   set undo = r ->> 2
  from jsonb_array_elements(:rows::jsonb) as r
 where run_id = r ->> 0
   and owner = r ->> 1
returning run_id;

-- park_runs: let go of runs that wait, unless a message came since the owner looked.
-- One that got as far as to wait is no suspect any more.
update runs
   set status = r ->> 2,
       owner = null,
       wake_at = (r ->> 3)::bigint,
       waiting = r ->> 4,
       losses = case when r ->> 2 = 'SUSPENDED' then 0 else losses end,
       deaths = case when r ->> 2 = 'SUSPENDED' then null else deaths end,
       updated_at = (r ->> 6)::bigint
  from jsonb_array_elements(:rows::jsonb) as r
 where run_id = r ->> 0
   and owner = r ->> 1
   and (r ->> 5 is null or messages = (r ->> 5)::bigint)
returning run_id;

-- hold_runs: stop runs until somebody acts; their histories stay as they are.
update runs
   set status = 'SUSPENDED',
       owner = null,
       wake_at = null,
       held = r ->> 2,
       held_report = r ->> 3,
       updated_at = (r ->> 4)::bigint
  from jsonb_array_elements(:rows::jsonb) as r
 where run_id = r ->> 0
   and owner = r ->> 1
   and (r ->> 5 is null or messages = (r ->> 5)::bigint)
returning run_id;

-- expect_runs: those of these runs that are still what they were, and stay so for as long as this transaction lasts.
select run_id
  from runs, jsonb_array_elements(:rows::jsonb) as r
 where run_id = r ->> 0
   and status = r ->> 1
   and held is not distinct from r ->> 2
   and step is not distinct from r ->> 3
   and attributes is not distinct from r ->> 4
   and updated_at = (r ->> 5)::bigint
   for no key update of runs;

-- expect_owners: those of these runs that are open and of the worker that says so, and have no event after a number.
-- They stay so for as long as this transaction lasts.
select run_id, owner, (r ->> 2)::bigint
  from runs, jsonb_array_elements(:rows::jsonb) as r
 where run_id = r ->> 0
   and owner = r ->> 1
   and closed_at is null
   and (
         r ->> 2 is null
         or not exists (select 1 from events where events.run_id = r ->> 0 and seq > (r ->> 2)::bigint)
       )
 order by run_id
   for no key update of runs;

-- hold_free_runs: runs that nobody owns are paused; whatever held them before is found again when they go on.
update runs
   set status = 'SUSPENDED',
       wake_at = null,
       held = 'paused',
       held_report = r ->> 1,
       updated_at = (r ->> 2)::bigint
  from jsonb_array_elements(:rows::jsonb) as r
 where run_id = r ->> 0
   and owner is null
   and closed_at is null
returning run_id;

-- hold_tasks: activities on queues that paused runs have called, and that no worker has begun.
update runs
   set status = 'SUSPENDED',
       wake_at = null,
       held = 'paused',
       held_report = r ->> 1,
       updated_at = (r ->> 2)::bigint
  from jsonb_array_elements(:rows::jsonb) as r
 where parent_id = r ->> 0
   and workflow >= 'task:'
   and workflow < 'task;'
   and owner is null
   and begun_at is null
   and closed_at is null
   and held is null
returning run_id;

-- note_waiting: what live runs wait for, for people to see.
update runs
   set waiting = r ->> 2,
       updated_at = (r ->> 3)::bigint
  from jsonb_array_elements(:rows::jsonb) as r
 where run_id = r ->> 0
   and owner = r ->> 1
returning run_id;

-- note_losses: what is held against runs from now on.
update runs
   set losses = (r ->> 2)::bigint,
       outlived = (r ->> 3)::bigint,
       deaths = null
  from jsonb_array_elements(:rows::jsonb) as r
 where run_id = r ->> 0
   and owner = r ->> 1
returning run_id;

-- count_posted: tell the runs' rows how many messages came, and make them ripe; signals do not end a delay.
-- A delay is over once the code has begun, whatever the clock of whoever sends a signal says.
update runs
   set messages = messages + (r ->> 1)::bigint,
       wake_at = case
                   when held is not null then wake_at
                   when (r ->> 2)::boolean and begun_at is null and delayed_until > (r ->> 3)::bigint then wake_at
                   else least(coalesce(wake_at, (r ->> 3)::bigint), (r ->> 3)::bigint)
                 end
  from jsonb_array_elements(:rows::jsonb) as r
 where run_id = r ->> 0
returning run_id, messages;

-- ripest: the ripest free runs of one queue and one priority, whoever has code for them, and whether this worker has.
select run_id,
       held is null
       and namespace = :namespace
       and workflow = any(:workflows::text[])
  from runs
 where queue = :queue
   and priority = :priority::bigint
   and owner is null
   and wake_at is not null
   and losses < 2
   and wake_at <= :now::bigint
   and wake_at >= :since::bigint
 order by wake_at, run_id
 limit :window::bigint;

-- ripest_of: the ripest free runs of one queue, one priority and one workflow.
-- Pairs, and in this order, so that only runs_waking will do: runs_ripe has the times in order as well, and the planner
-- would walk over all that others have there to find the first of a workflow that has none. The end comes last, for the
-- upper one of two pairs ends no walk before Postgres 18.
select wake_at, run_id, run_id
  from (
         select wake_at, run_id
           from runs
          where queue = :queue
            and priority = :priority::bigint
            and namespace = :namespace
            and (workflow, wake_at) >= (:workflow, :since::bigint)
            and workflow <= :workflow
            and owner is null
            and wake_at is not null
            and losses < 2
            and held is null
          order by workflow, wake_at, run_id
          limit :limit::bigint
       ) as next
 where wake_at <= :now::bigint;

-- ripest_below: runs of one queue and one workflow that are due, of all priorities below one, the oldest first. By time,
-- since between two of them any number of priorities may sleep: the queue is named as only runs_due has it.
select priority, wake_at, run_id, run_id
  from runs
 where queue || '' = :queue
   and namespace = :namespace
   and workflow = :workflow
   and priority < :priority::bigint
   and owner is null
   and wake_at is not null
   and losses < 2
   and held is null
   and wake_at <= :now::bigint
 order by wake_at, run_id
 limit :window::bigint;

-- ripe_levels: the highest priorities of a queue's free runs, and whether one of each is due by then; from one to the
-- next without what is between.
-- By order and limit: where nothing is known of the table, Postgres 15 looks for a maximum among all of them.
with recursive levels (priority, place) as (
    (select priority, 1
       from runs
      where queue = :queue
        and owner is null
        and wake_at is not null
        and losses < 2
      order by priority desc
      limit 1)
     union all
    select (select priority
              from runs
             where queue = :queue
               and owner is null
               and wake_at is not null
               and losses < 2
               and priority < levels.priority
             order by priority desc
             limit 1),
           place + 1
      from levels
     where levels.priority is not null
       and place < :most_levels::bigint
)
select levels.priority, first.wake_at <= :now::bigint as is_due
  from levels
  join lateral (
         select wake_at
           from runs
          where queue = :queue
            and priority = levels.priority
            and owner is null
            and wake_at is not null
            and losses < 2
          order by wake_at
          limit 1
       ) as first on true;

-- levels_between: the highest priority of a queue's free runs in each of these gaps that has one.
select found.priority
  from unnest(:above::bigint[], :below::bigint[]) as gap (above, below)
  join lateral (
         select priority
           from runs
          where queue = :queue
            and owner is null
            and wake_at is not null
            and losses < 2
            and priority > gap.above
            and priority < gap.below
          order by priority desc
          limit 1
       ) as found on true;

-- first_suspect: the ripest suspect of one queue that this worker has code for, and that nobody holds just now: those
-- behind it must not wait for it.
select priority, wake_at, losses
  from runs
 where queue = :queue
   and owner is null
   and wake_at is not null
   and losses >= 2
   and wake_at <= :now::bigint
   and held is null
   and namespace = :namespace
   and workflow = any(:workflows::text[])
 order by priority desc, wake_at, run_id
 limit 1
   for no key update skip locked;

-- suspects_like_it: the ripest suspects of one queue that were lost as often.
select run_id
  from runs
 where queue = :queue
   and owner is null
   and wake_at is not null
   and losses >= 2
   and losses = :losses::bigint
   and wake_at <= :now::bigint
   and held is null
   and namespace = :namespace
   and workflow = any(:workflows::text[])
 order by priority desc, wake_at, run_id
 limit :limit::bigint
   for no key update skip locked;

-- claim_runs: take the first of these, but for those that somebody else takes or holds just now.
-- That they are open is asked so that the index of open runs is of no use: they are looked up by their ids.
with free as materialized (
    select run_id
      from runs
     where run_id = any(:run_ids::text[])
       and owner is null
       and wake_at is not null
       and held is null
       and coalesce(closed_at, -1) = -1
     order by array_position(:run_ids::text[], run_id)
     limit :limit::bigint
       for no key update skip locked
)
update runs
   set owner = :worker_id,
       begun_at = coalesce(begun_at, greatest(:now::bigint, created_at)),
       status = 'RUNNING',
       waiting = null
  from free
 where runs.run_id = free.run_id
returning runs.run_id;

-- claim_ripest: take the ripest of one queue and one priority, but for those that somebody else takes or holds just now.
-- They are looked for anew: of those that were seen a moment ago, others may be taking every one.
with free as materialized (
    select run_id
      from runs
     where queue = :queue
       and priority = :priority::bigint
       and owner is null
       and wake_at is not null
       and losses < 2
       and wake_at <= :now::bigint
       and wake_at >= :since::bigint
       and held is null
       and namespace = :namespace
       and workflow = any(:workflows::text[])
     order by wake_at, run_id
     limit :limit::bigint
       for no key update skip locked
)
update runs
   set owner = :worker_id,
       begun_at = coalesce(begun_at, greatest(:now::bigint, created_at)),
       status = 'RUNNING',
       waiting = null
  from free
 where runs.run_id = free.run_id
returning runs.run_id;

-- free_mismatches: give held runs another try; the code may be back. What somebody holds just now stays held.
with bite as materialized (
    select run_id
      from runs
     where held = 'mismatch'
       and namespace = :namespace
       and workflow = any(:workflows::text[])
       and queue = any(:queues::text[])
       for no key update skip locked
)
update runs
   set held = null,
       held_report = null,
       status = 'PENDING',
       wake_at = :now::bigint
  from bite
 where runs.run_id = bite.run_id
returning runs.run_id;

-- suspects_of: the suspects a lost worker owned; two are as good as more.
select run_id, workflow_id, deaths, losses, outlived
  from runs
 where owner = :worker_id
   and closed_at is null
   and losses >= 2
 limit 2;

-- reach_run: a run's row, for this transaction to change; nothing when somebody holds it just now.
select 1
  from runs
 where run_id = :run_id
   for no key update skip locked;

-- free_runs: what a gone worker owned is ripe for others; that it was lost counts until it gets on.
-- What somebody holds just now is left for the next bite. They are looked for once, before anything is changed: inside
-- a condition the server may look again for every row, and find others each time.
with bite as materialized (
    select run_id
      from runs
     where owner = :worker_id
       and closed_at is null
     order by run_id
     limit :limit::bigint
       for no key update skip locked
)
update runs
   set owner = null,
       status = 'PENDING',
       wake_at = :now::bigint,
       losses = losses + 1
  from bite
 where runs.run_id = bite.run_id
returning runs.run_id;

-- free_orphans: what is owned by nobody who has a row is ripe for others.
with bite as materialized (
    select run_id
      from runs
     where owner = :owner
       and closed_at is null
       and not exists (select 1 from workers where worker_id = :owner)
     order by run_id
     limit :limit::bigint
       for no key update skip locked
)
update runs
   set owner = null,
       status = 'PENDING',
       wake_at = :now::bigint
  from bite
 where runs.run_id = bite.run_id
returning runs.run_id;

-- next_wakes: when the next free run of one queue becomes ripe, whichever of these priorities it has; runs of other
-- workflows lie elsewhere. Only runs_waking will do, as for ripest_of. From a floor on, where there is one.
select min((select wake_at
              from runs
             where queue = :queue
               and priority = level.priority
               and namespace = :namespace
               and (workflow, wake_at) >= (known.name, :since::bigint)
               and workflow <= known.name
               and owner is null
               and wake_at is not null
               and losses < 2
               and held is null
             order by workflow, wake_at
             limit 1))
  from unnest(:priorities::bigint[]) as level (priority)
  cross join unnest(:workflows::text[]) as known (name);

-- next_wakes_of_all: the same of whatever priority, by time, since there may be any number of them. From runs_due, as
-- ripest_below.
select min((select wake_at
              from runs
             where queue || '' = :queue
               and namespace = :namespace
               and workflow = known.name
               and owner is null
               and wake_at is not null
               and losses < 2
               and held is null
             order by wake_at
             limit 1))
  from unnest(:workflows::text[]) as known (name);

-- next_waking: the next workflow, by name, of one queue and one priority that free runs wait to be woken for.
select priority, workflow, wake_at, updated_at
  from runs
 where queue = :queue
   and priority = :priority::bigint
   and namespace = :namespace
   and workflow > :workflow
   and owner is null
   and wake_at is not null
   and losses < 2
   and held is null
 order by workflow, wake_at
 limit 1;

-- next_waking_level: the first workflow, by name, of the next lower priority of a queue.
select priority, workflow, wake_at, updated_at
  from runs
 where queue = :queue
   and priority < :priority::bigint
   and namespace = :namespace
   and owner is null
   and wake_at is not null
   and losses < 2
   and held is null
 order by priority desc, workflow, wake_at
 limit 1;

-- count_ahead: how many due runs of these workflows are claimed before one, counted up to a number, or somewhat beyond.
-- Those of higher priorities are looked for only where there are any, among the first that were due of each workflow.
select (select count(*)
          from (select 1
                  from unnest(:workflows::text[]) as known (name)
                 cross join lateral (
                         select 1
                           from runs
                          where queue = :queue
                            and priority = :priority::bigint
                            and namespace = :namespace
                            and workflow = known.name
                            and owner is null
                            and wake_at is not null
                            and losses < 2
                            and (wake_at, run_id) < (:wake_at::bigint, :run_id)
                          limit :most::bigint
                       ) as each
                 limit :most::bigint) as before)
       + case
           when not exists (select 1
                              from runs
                             where queue = :queue
                               and priority > :priority::bigint
                               and owner is null
                               and wake_at is not null
                               and losses < 2) then 0
           else (select count(*)
                   from unnest(:workflows::text[]) as known (name)
                  cross join lateral (
                          select priority
                            from runs
                           where queue || '' = :queue
                             and namespace = :namespace
                             and workflow = known.name
                             and owner is null
                             and wake_at is not null
                             and losses < 2
                             and wake_at <= :now::bigint
                           order by wake_at, run_id
                           limit :most::bigint
                        ) as due
                  where due.priority > :priority::bigint)
         end;

-- row_holders: who holds the rows of these runs in a transaction, and for how many seconds that is open.
select distinct holder.pid::text || coalesce(' (' || nullif(holder.application_name, '') || ')', ''),
       extract(epoch from clock_timestamp() - holder.xact_start)::bigint
  from runs
  join pg_locks as held on held.locktype = 'transactionid' and held.transactionid = runs.xmax and held.granted
  join pg_stat_activity as holder on holder.pid = held.pid
 where run_id = any(:run_ids::text[]);

-- next_kind: the next queue, namespace and workflow, in this order, of which free runs wait to be woken, and whether one
-- is due by now. From runs_due, as ripest_below.
select queue, namespace, workflow, wake_at <= :now::bigint as is_due
  from runs
 where (queue || '', namespace, workflow) > (:queue, :namespace, :workflow)
   and owner is null
   and wake_at is not null
   and losses < 2
 order by queue || '', namespace, workflow, wake_at, run_id
 limit 1;

-- stuck_runs: due runs of these queues and workflows, and runs of these owners, that have not moved since a time.
select *
  from runs
 where run_id in (
         select due.run_id
           from unnest(:queues::text[], :workflows::text[]) as kind (queue, workflow)
          cross join lateral (
                  select run_id
                    from runs
                   where queue || '' = kind.queue
                     and namespace = :namespace
                     and workflow = kind.workflow
                     and owner is null
                     and wake_at is not null
                     and losses < 2
                     and wake_at <= :until::bigint
                ) as due
          union all
         select suspect.run_id
           from unnest(:queues::text[], :workflows::text[]) as kind (queue, workflow)
           join runs as suspect
             on suspect.queue = kind.queue
            and suspect.workflow = kind.workflow
          where namespace = :namespace
            and owner is null
            and wake_at is not null
            and losses >= 2
            and wake_at <= :until::bigint
          union all
         select run_id
           from runs
          where owner = any(:owners::text[])
            and closed_at is null
            and namespace = :namespace
       )
   and (:before is null or run_id < :before)
   and held is null
   and greatest(updated_at,
                coalesce((select max(at) from inbox where inbox.run_id = runs.run_id and taken_by is null), 0),
                coalesce((select at from events where events.run_id = runs.run_id order by seq desc limit 1), 0)) <= :until::bigint
 order by run_id desc
 limit :limit::bigint;
