-- What SQLite is asked of runs in its own way. `:rows` becomes as many rows of parameters as the batch has;
-- unused ones are null and skipped. `at_once(…)` is ripe at once: the turn of this statement.
-- A time that has come by the clock of who writes it means at once: that clock may be ahead of all others.

-- insert_runs: new runs; a taken workflow_id or run_id inserts nothing.
insert into runs (run_id, namespace, workflow_id, workflow, queue, status, owner, wake_at, priority, input, seed, created_at, updated_at, begun_at)
select column1, column2, column3, column4, column5, column6, column7, case when column8 <= column12 then at_once(column8) else column8 end, column9, column10, column11, column12, column12, case when column7 is not null then column12 end
  from (values :rows)
 where column1 is not null
    on conflict do nothing;

-- insert_rich_runs: the same for runs that have a parent, an entity, a deadline or the like.
insert into runs (run_id, namespace, workflow_id, workflow, queue, status, owner, wake_at, priority, input, seed, created_at, updated_at, begun_at, parent_id, parent_place, on_parent_close, entity_id, correlation_id, attributes, initial_attributes, timeout_ms, delayed_until, close_at, close_as, continued_from, schedule, scheduled_for)
select column1, column2, column3, column4, column5, column6, column7, case when column8 <= column12 then at_once(column8) else column8 end, column9, column10, column11, column12, column12, case when column7 is not null then column12 end, column13, column14, column15, column16, column17, column18, column18, column19, column20, column21, case when column21 is not null then 'TIMED_OUT' end, column22, column23, column24
  from (values :rows)
 where column1 is not null
    on conflict do nothing;

-- end_runs: close runs for ever.
update runs
   set status = ended.column2,
       outcome = ended.column3,
       last_seq = ended.column4,
       updated_at = ended.column5,
       closed_at = ended.column5,
       owner = null,
       wake_at = null,
       waiting = null,
       undo = coalesce(ended.column7, undo)
  from (values :rows) as ended
 where run_id = ended.column1
   and owner = ended.column6;

-- annotate_runs: what workflows say of themselves.
update runs
   set attributes = coalesce(note.column3, attributes),
       own_attributes = case when note.column3 is null then own_attributes else nullif(note.column8, note.column3) end,
       step = note.column4,
       waiting = null,
       updated_at = note.column5
  from (values :rows) as note
 where run_id = note.column1
   and owner = note.column2
   and (note.column3 is null or coalesce(attributes, '') = coalesce(note.column7, ''))
returning run_id;

-- note_undos: what runs would have to undo.
update runs
   set undo = note.column3
  from (values :rows) as note
 where run_id = note.column1
   and owner = note.column2
returning run_id;

-- count_posted: tell the runs' rows how many messages came, and make them ripe; signals do not end a delay.
-- A delay that is not over has its time still; whatever the clock of whoever sends a signal says, it keeps that.
update runs
   set messages = messages + told.column2,
       wake_at = case
                   when held is not null then wake_at
                   when told.column3 and begun_at is null and delayed_until is not null and wake_at is not null then wake_at
                   else least(coalesce(wake_at, at_once(told.column4)), at_once(told.column4))
                 end
  from (values :rows) as told
 where run_id = told.column1
returning run_id, messages;

-- park_runs: let go of runs that wait, unless a message came since the owner looked.
-- One that got as far as to wait is no suspect any more.
update runs
   set status = park.column3,
       owner = null,
       wake_at = case when park.column4 <= park.column7 then at_once(park.column4) else park.column4 end,
       waiting = park.column5,
       losses = case when park.column3 = 'SUSPENDED' then 0 else losses end,
       deaths = case when park.column3 = 'SUSPENDED' then null else deaths end,
       updated_at = park.column7
  from (values :rows) as park
 where run_id = park.column1
   and owner = park.column2
   and (park.column6 is null or messages = park.column6)
returning run_id;

-- hold_runs: stop runs until somebody acts; their histories stay as they are.
update runs
   set status = 'SUSPENDED',
       owner = null,
       wake_at = null,
       held = hold.column3,
       held_report = hold.column4,
       updated_at = hold.column5
  from (values :rows) as hold
 where run_id = hold.column1
   and owner = hold.column2
   and (hold.column6 is null or messages = hold.column6)
returning run_id;

-- expect_runs: those of these runs that are still what they were.
select run_id
  from runs, (values :rows) as expected
 where run_id = expected.column1
   and status = expected.column2
   and held is expected.column3
   and step is expected.column4
   and attributes is expected.column5
   and updated_at = expected.column6;

-- expect_owners: those of these runs that are open and of the worker that says so, and have no event after a number.
select run_id, owner, expected.column3
  from runs, (values :rows) as expected
 where run_id = expected.column1
   and owner = expected.column2
   and closed_at is null
   and (
         expected.column3 is null
         or not exists (select 1 from events where run_id = expected.column1 and seq > expected.column3)
       );

-- hold_free_runs: runs that nobody owns are paused; whatever held them before is found again when they go on.
update runs
   set status = 'SUSPENDED',
       wake_at = null,
       held = 'paused',
       held_report = hold.column2,
       updated_at = hold.column3
  from (values :rows) as hold
 where run_id = hold.column1
   and owner is null
   and closed_at is null
returning run_id;

-- hold_tasks: activities on queues that paused runs have called, and that no worker has begun.
update runs
   set status = 'SUSPENDED',
       wake_at = null,
       held = 'paused',
       held_report = hold.column2,
       updated_at = hold.column3
  from (values :rows) as hold
 where parent_id = hold.column1
   and workflow >= 'task:'
   and workflow < 'task;'
   and owner is null
   and begun_at is null
   and closed_at is null
   and held is null
returning run_id;

-- note_waiting: what live runs wait for, for people to see.
update runs
   set waiting = note.column3,
       updated_at = note.column4
  from (values :rows) as note
 where run_id = note.column1
   and owner = note.column2
returning run_id;

-- ripen: what is due takes its turn behind what was ripe before it, in the order of their times.
update runs
   set wake_at = at_once(:now) + due.place
  from (
         select number, row_number() over (order by wake_at, number) as place
           from (
                  select rowid as number, wake_at
                    from runs indexed by runs_sleeping
                   where queue = :queue
                     and owner is null
                     and wake_at >= 0
                     and losses < 2
                     and wake_at <= :now
                   order by wake_at, rowid
                   limit :most_due
                )
       ) as due
 where runs.rowid = due.number;

-- ripest: the ripest free runs of one queue and one priority, whoever has code for them, and whether this worker has.
-- The index is named and other columns are kept from it: closed runs would be walked otherwise.
select run_id,
       held is null
       and namespace = :namespace
       and workflow in (select value from json_each(:workflows))
  from runs indexed by runs_ripe
 where queue = :queue
   and priority = :priority
   and owner is null
   and wake_at < 0
   and losses < 2
 order by wake_at
 limit :window;

-- ripest_of: the ripest free runs of one queue, one priority and one workflow.
select wake_at, rowid, run_id
  from runs indexed by runs_ripe_by_workflow
 where queue = :queue
   and priority = :priority
   and namespace = :namespace
   and workflow = :workflow
   and owner is null
   and wake_at < 0
   and losses < 2
   and held is null
 order by wake_at
 limit :limit;

-- ripest_below: the ripest free runs of one queue and one workflow, of all priorities below one.
select priority, wake_at, rowid, run_id
  from runs indexed by runs_ripe_by_workflow
 where queue = :queue
   and namespace = :namespace
   and workflow = :workflow
   and priority < :priority
   and owner is null
   and wake_at < 0
   and losses < 2
   and held is null
 order by priority desc, wake_at
 limit :limit;

-- claim_runs: take the first of these.
update runs
   set owner = :worker_id,
       begun_at = coalesce(begun_at, greatest(:now, created_at)),
       status = 'RUNNING',
       waiting = null
 where run_id in (select value from json_each(:run_ids) limit :limit)
returning run_id;

-- claim_ripest: take the first of these, which are the ripest of one queue and one priority.
update runs
   set owner = :worker_id,
       begun_at = coalesce(begun_at, greatest(:now, created_at)),
       status = 'RUNNING',
       waiting = null
 where run_id in (select value from json_each(:run_ids) limit :limit)
returning run_id;

-- hold_unclaimable: free runs without an id, a priority or a time to wake that can be read, whatever holds them already.
update runs
   set status = 'SUSPENDED',
       wake_at = null,
       held = coalesce(held, 'quarantine'),
       held_report = coalesce(held_report, :report),
       updated_at = :now
 where owner is null
   and wake_at is not null
   and closed_at is null
   and (
         typeof(run_id) <> 'text'
         or not is_text(cast(run_id as blob))
         or typeof(priority) <> 'integer'
         or typeof(wake_at) <> 'integer'
       )
returning run_id, workflow_id;

-- first_suspect: the ripest suspect of one queue that this worker has code for.
-- A free suspect is ripe or rests, and no rest is longer than five minutes: a later one was set by a clock that is ahead.
select priority, wake_at, losses
  from runs indexed by runs_suspected
 where queue = :queue
   and owner is null
   and wake_at is not null
   and losses >= 2
   and (wake_at <= :now or wake_at > :now + 300000)
   and held is null
   and namespace = :namespace
   and workflow in (select value from json_each(:workflows))
 order by priority desc, wake_at
 limit 1;

-- suspects_like_it: the ripest suspects of one queue that were lost as often.
select run_id
  from runs indexed by runs_suspected
 where queue = :queue
   and owner is null
   and wake_at is not null
   and losses >= 2
   and losses = :losses
   and (wake_at <= :now or wake_at > :now + 300000)
   and held is null
   and namespace = :namespace
   and workflow in (select value from json_each(:workflows))
 order by priority desc, wake_at
 limit :limit;

-- note_losses: what is held against runs from now on.
update runs
   set losses = note.column3,
       outlived = note.column4,
       deaths = null
  from (values :rows) as note
 where run_id = note.column1
   and owner = note.column2
returning run_id;

-- free_mismatches: give held runs another try; the code may be back.
-- The index is named, or all runs of these workflows would be walked.
update runs indexed by runs_held
   set held = null,
       held_report = null,
       status = 'PENDING',
       wake_at = at_once(:now)
 where held = 'mismatch'
   and namespace = :namespace
   and workflow in (select value from json_each(:workflows))
   and queue in (select value from json_each(:queues))
returning cast(run_id as blob);

-- suspects_of: the suspects a lost worker owned; two are as good as more.
select run_id, workflow_id, cast(deaths as blob), cast(losses as integer), cast(outlived as integer)
  from runs
 where owner = :worker_id
   and closed_at is null
   and losses >= 2
 limit 2;

-- reach_run: a run's row, for this transaction to change.
select 1 from runs where run_id = :run_id;

-- free_runs: what a gone worker owned is ripe for others; that it was lost counts until it gets on.
update runs
   set owner = null,
       status = 'PENDING',
       wake_at = at_once(:now),
       losses = losses + 1
 where run_id in (
         select run_id
           from runs
          where owner = :worker_id
            and closed_at is null
          limit :limit
       )
returning cast(run_id as blob);

-- free_orphans: what is owned by nobody who has a row, or one with an epoch, is ripe for others.
update runs
   set owner = null,
       status = 'PENDING',
       wake_at = at_once(:now)
 where run_id in (
         select run_id
           from runs
          where owner = :owner
            and closed_at is null
            and not exists (select 1 from workers where worker_id = :owner and typeof(epoch) = 'integer')
          limit :limit
       )
returning cast(run_id as blob);

-- ripe_levels: the highest priorities of a queue's free runs that are ripe, and that they are; from one to the next
-- without what is between. What sleeps lies elsewhere.
with recursive levels (priority) as (
    select max(priority)
      from runs indexed by runs_ripe
     where queue = :queue
       and owner is null
       and wake_at < 0
       and losses < 2
     union all
    select (select max(priority)
              from runs indexed by runs_ripe
             where queue = :queue
               and owner is null
               and wake_at < 0
               and losses < 2
               and priority < levels.priority)
      from levels
     where levels.priority is not null
     limit :most_levels
)
select priority, true
  from levels
 where priority is not null;

-- next_wakes: when the next free run of one queue becomes ripe, if none is. Those of other workflows lie elsewhere.
select min(coalesce((select -1
                       from runs indexed by runs_ripe_by_workflow
                      where queue = :queue
                        and namespace = :namespace
                        and workflow = known.value
                        and owner is null
                        and wake_at < 0
                        and losses < 2
                        and held is null
                      limit 1),
                    (select wake_at
                       from runs indexed by runs_waking
                      where queue = :queue
                        and namespace = :namespace
                        and workflow = known.value
                        and owner is null
                        and wake_at >= 0
                        and losses < 2
                        and held is null
                      order by wake_at
                      limit 1)))
  from json_each(:workflows) as known;

-- next_waking: the next workflow, by name, of one queue and one level that free runs wait to be woken for: 1 has what is
-- ripe, 0 what sleeps.
select *
  from (select 1 as priority, workflow, wake_at, updated_at
          from runs indexed by runs_ripe_by_workflow
         where :priority = 1
           and queue = :queue
           and namespace = :namespace
           and workflow > :workflow
           and owner is null
           and wake_at < 0
           and losses < 2
           and held is null
         order by workflow
         limit 1)
union all
select *
  from (select 0 as priority, workflow, wake_at, updated_at
          from runs indexed by runs_waking
         where :priority = 0
           and queue = :queue
           and namespace = :namespace
           and workflow > :workflow
           and owner is null
           and wake_at >= 0
           and losses < 2
           and held is null
         order by workflow, wake_at
         limit 1);

-- next_waking_level: the first workflow, by name, of the next lower level of a queue.
select *
  from (select 1 as priority, workflow, wake_at, updated_at
          from runs indexed by runs_ripe_by_workflow
         where :priority > 1
           and queue = :queue
           and namespace = :namespace
           and owner is null
           and wake_at < 0
           and losses < 2
           and held is null
         order by workflow
         limit 1)
union all
select *
  from (select 0 as priority, workflow, wake_at, updated_at
          from runs indexed by runs_waking
         where :priority > 0
           and queue = :queue
           and namespace = :namespace
           and owner is null
           and wake_at >= 0
           and losses < 2
           and held is null
         order by workflow, wake_at
         limit 1)
 order by 1 desc
 limit 1;

-- count_ahead: how many ripe runs of these workflows are claimed before one, counted up to a number. One that is due and
-- has no turn yet comes after all that have one; of those that have the same turn, the first written is the first.
select count(*)
  from (select 1
          from json_each(:workflows) as known
         cross join runs indexed by runs_ripe_by_workflow
         where queue = :queue
           and namespace = :namespace
           and workflow = known.value
           and owner is null
           and wake_at < 0
           and losses < 2
           and priority > :priority
         union all
        select 1
          from json_each(:workflows) as known
         cross join runs indexed by runs_ripe_by_workflow
         where queue = :queue
           and namespace = :namespace
           and workflow = known.value
           and owner is null
           and priority = :priority
           and wake_at < min(:wake_at + 1, 0)
           and wake_at < 0
           and losses < 2
           and (wake_at < :wake_at or runs.rowid < (select rowid from runs where run_id = :run_id))
         limit :most);

-- row_holders: nobody; here a whole file is locked, and no row of it.
select null, null from json_each(:run_ids) where false;

-- next_kind: the next queue, namespace and workflow, in this order, of which free runs are ripe or sleep, and whether one
-- is due by now.
select *
  from (select *
          from (select queue, namespace, workflow, true as is_due
                  from runs indexed by runs_ripe_by_workflow
                 where (queue, namespace, workflow) > (:queue, :namespace, :workflow)
                   and owner is null
                   and wake_at < 0
                   and losses < 2
                 order by queue, namespace, workflow
                 limit 1)
         union all
        select *
          from (select queue, namespace, workflow, wake_at <= :now as is_due
                  from runs indexed by runs_waking
                 where (queue, namespace, workflow) > (:queue, :namespace, :workflow)
                   and owner is null
                   and wake_at >= 0
                   and losses < 2
                 order by queue, namespace, workflow, wake_at
                 limit 1))
 order by queue, namespace, workflow, is_due desc
 limit 1;

-- stuck_runs: due runs of these queues and workflows, and runs of these owners, that have not moved since a time.
select *
  from runs
 where rowid in (
         select runs.rowid
           from json_each(:queues) as kind
           join json_each(:workflows) as named on named.key = kind.key
          cross join runs indexed by runs_ripe_by_workflow
          where queue = kind.value
            and namespace = :namespace
            and workflow = named.value
            and owner is null
            and wake_at < 0
            and losses < 2
          union all
         select runs.rowid
           from json_each(:queues) as kind
           join json_each(:workflows) as named on named.key = kind.key
          cross join runs indexed by runs_waking
          where queue = kind.value
            and namespace = :namespace
            and workflow = named.value
            and owner is null
            and wake_at between 0 and :until
            and wake_at >= 0
            and losses < 2
          union all
         select runs.rowid
           from json_each(:queues) as kind
           join json_each(:workflows) as named on named.key = kind.key
          cross join runs indexed by runs_suspected
          where queue = kind.value
            and namespace = :namespace
            and workflow = named.value
            and owner is null
            and wake_at is not null
            and wake_at <= :until
            and losses >= 2
          union all
         select runs.rowid
           from json_each(:owners) as gone
          cross join runs indexed by runs_open
          where owner = gone.value
            and closed_at is null
            and namespace = :namespace
       )
   and (:before is null or run_id < :before)
   and held is null
   and max(updated_at,
           coalesce((select max(at) from inbox where inbox.run_id = runs.run_id and taken_by is null), 0),
           coalesce((select at from events where events.run_id = runs.run_id order by seq desc limit 1), 0)) <= :until
 order by run_id desc
 limit :limit;
