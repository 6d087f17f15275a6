-- What every database is asked of runs, with the types of parameters that are not text.
-- `at_once(…)` is ripe at once: the turn of this statement, or on Postgres the time given.

-- supersede_run: make way for another run under the same workflow_id.
update runs
   set is_latest = false
 where run_id = :run_id
   and (closed_at is not null or owner = :owner);

-- carry_outside: a request to stop, the end it set, and attributes that were set from outside hold for the run that
-- continues.
update runs
   set cancel_requested_at = before.cancel_requested_at,
       cancel_reason = before.cancel_reason,
       close_as = case when before.close_as = 'CANCELLED' then 'CANCELLED' else runs.close_as end,
       close_at = case when before.close_as = 'CANCELLED' then before.close_at else runs.close_at end,
       attributes = case when before.own_attributes is null then runs.attributes else before.attributes end,
       own_attributes = case when before.own_attributes is not null then coalesce(runs.attributes, '{}') end
  from (select * from runs where run_id = :run_id) as before
 where runs.run_id = :to_run_id
   and (before.cancel_requested_at is not null or before.own_attributes is not null);

-- note_fork: a run that was just inserted has its past from another one, and the times of that.
update runs
   set forked_from = :from_run_id,
       forked_at = :forked_at::bigint,
       fork_kind = :kind,
       fork_reason = :reason,
       initial_attributes = :initial_attributes,
       begun_at = :begun_at::bigint,
       first_at = :first_at::bigint,
       cancel_requested_at = :cancel_requested_at::bigint,
       cancel_reason = :cancel_reason,
       own_attributes = (select before.own_attributes from runs as before where before.run_id = :from_run_id)
 where run_id = :run_id
   and forked_from is null;

-- note_forked_to: a run tells of the newest one that has its past; what was sent to one that continued has gone on.
update runs
   set forked_to = :to_run_id
 where run_id = :run_id
   and status <> 'CONTINUED';

-- claim_one: take a run that is due, if nobody has it and this worker has code for it.
update runs
   set owner = :worker_id,
       begun_at = coalesce(begun_at, greatest(:now::bigint, created_at)),
       status = 'RUNNING',
       waiting = null
 where run_id = :run_id
   and namespace = :namespace
   and owner is null
   and closed_at is null
   and held is null
   and wake_at <= :now::bigint
   and workflow in (select value from json_each(:workflows::text[]));

-- count_messages: tell the run how many messages it was given.
update runs
   set messages = messages + (select count(*) from inbox where run_id = :to_run_id)
 where run_id = :to_run_id;

-- count_delayed: tell a run how many messages came that are due later, and have it sleep until then at the longest.
-- As any signal, these do not end a delay.
update runs
   set messages = messages + :count::bigint,
       wake_at = case
                   when held is not null then wake_at
                   when begun_at is null and delayed_until is not null and wake_at is not null then wake_at
                   else least(coalesce(wake_at, :due_at::bigint), :due_at::bigint)
                 end
 where run_id = :run_id
returning messages;

-- close_free_run: close a run that nobody owns, for ever, and not before its last event, whatever the clock says.
-- A timeout closes only what would be found overdue: since the look the run may have been let go on, and has to undo.
update runs
   set status = :status,
       outcome = :outcome,
       last_seq = 1 + coalesce((select max(seq) from events where events.run_id = runs.run_id), 1),
       updated_at = greatest(:at::bigint, created_at, last.at),
       closed_at = greatest(:at::bigint, created_at, last.at),
       wake_at = null,
       waiting = null,
       held = null
  from (select coalesce((select at from events where run_id = :run_id order by seq desc limit 1), 0) as at) as last
 where run_id = :run_id
   and namespace = :namespace
   and owner is null
   and closed_at is null
   and (not :only_unbegun::boolean or (begun_at is null and status = 'PENDING'))
   and (:status <> 'TIMED_OUT' or held in ('mismatch', 'quarantine') or undo is null or undo not like '%"state":"waiting"%')
returning last_seq;

-- close_unbegun_children: those whose code was never called have nothing to clean up.
-- One place or all of them is a range here, so that the index serves both.
update runs
   set status = case when :all_terminate::boolean or on_parent_close = 'terminate' then 'TERMINATED' else 'CANCELLED' end,
       outcome = case when :all_terminate::boolean or on_parent_close = 'terminate' then :terminate else :cancel end,
       last_seq = 2,
       updated_at = greatest(:at::bigint, created_at),
       closed_at = greatest(:at::bigint, created_at),
       wake_at = null,
       held = null
 where parent_id = :run_id
   and parent_place between coalesce(:place, '') and coalesce(:place, :last_place)
   and closed_at is null
   and owner is null
   and begun_at is null
   and (status = 'PENDING' or held = 'paused')
   and on_parent_close <> 'abandon'
returning run_id;

-- wake_children: make them ripe for it.
update runs
   set messages = messages + 1,
       wake_at = least(coalesce(wake_at, at_once(:at::bigint)), at_once(:at::bigint)),
       cancel_requested_at = coalesce(cancel_requested_at, :at::bigint),
       cancel_reason = coalesce(cancel_reason, :reason)
 where run_id in (select value from json_each(:run_ids::text[]));

-- note_cancel: a run was asked to stop; the earliest end by the clock is the one that holds.
-- But a timeout that is over does not end a run that has something to undo: there a deadline is the end.
update runs
   set cancel_requested_at = coalesce(cancel_requested_at, :at::bigint),
       cancel_reason = coalesce(cancel_reason, :reason),
       close_as = case
                    when :close_at::bigint < coalesce(close_at, :close_at::bigint + 1) then 'CANCELLED'
                    when :close_at::bigint is not null and close_as = 'TIMED_OUT' and close_at <= :at::bigint and undo like '%"state":"waiting"%' then 'CANCELLED'
                    else close_as
                  end,
       close_at = case
                    when close_as = 'TIMED_OUT' and close_at <= :at::bigint and undo like '%"state":"waiting"%' then coalesce(:close_at::bigint, close_at)
                    else coalesce(least(close_at, :close_at::bigint), close_at, :close_at::bigint)
                  end
 where run_id = :run_id
   and closed_at is null;

-- set_attributes: attributes from outside; what the code has made of them is kept beside. The run has not moved.
update runs
   set attributes = :attributes,
       own_attributes = coalesce(own_attributes, attributes, '{}')
 where run_id = :run_id
   and namespace = :namespace
   and coalesce(attributes, '') = coalesce(:before, '');

-- run_owner: who owns a run, if it is there, and its attributes.
select owner, attributes
  from runs
 where run_id = :run_id
   and namespace = :namespace;

-- run_status: where a run stands, if it is there, and whether it has ended.
select status, closed_at is not null
  from runs
 where run_id = :run_id;

-- note_unread: how many that are.
update runs
   set messages_read = messages - :unread::bigint
 where run_id = :run_id;

-- resume_run: a held run goes on, and nothing is held against it any more.
update runs
   set held = null,
       held_report = null,
       status = 'PENDING',
       wake_at = case
                   when begun_at is null and delayed_until > :now::bigint then delayed_until
                   else at_once(:now::bigint)
                 end,
       losses = 0,
       outlived = 0,
       deaths = null,
       updated_at = :now::bigint
 where run_id = :run_id
   and held is not null
   and owner is null
   and closed_at is null;

-- free_tasks: those that were held with it.
update runs
   set status = 'PENDING',
       wake_at = at_once(:now::bigint),
       held = null,
       held_report = null,
       updated_at = :now::bigint
 where parent_id = :run_id
   and held = 'paused'
   and held_report = :report
   and owner is null
   and closed_at is null
returning run_id;

-- touch_run: take a run's row, for as long as this transaction lasts.
update runs
   set updated_at = updated_at
 where run_id = :run_id
returning owner, status, closed_at is not null;

-- noted_waiting: what a run was last seen to wait for.
select waiting from runs where run_id = :run_id;

-- company_of: whether a lost worker owned runs of two families; a family is all there is under one root.
with recursive family (run_id, parent_id) as (
    select run_id, parent_id
      from runs
     where owner = :worker_id
       and closed_at is null
     union
    select runs.run_id, runs.parent_id
      from runs
      join family on runs.run_id = family.parent_id
)
select distinct coalesce(parent_id, run_id)
  from family
 where parent_id is null
    or not exists (select 1 from runs where runs.run_id = family.parent_id)
 limit 1
offset 1;

-- pause_run: a run that was alone with its lost worker is tried again, but not at once.
update runs
   set owner = null,
       status = 'PENDING',
       wake_at = :wake_at::bigint,
       losses = losses + 1
 where run_id = :run_id
   and owner = :worker_id;

-- blame_run: a worker was lost with this run as its only suspect.
update runs
   set deaths = :deaths
 where run_id = :run_id;

-- run: one run's row.
select * from runs where run_id = :run_id and namespace = :namespace;

-- latest_run: the newest run of a workflow_id.
select * from runs where namespace = :namespace and workflow_id = :workflow_id and is_latest;

-- owned_runs: rows of runs this worker owns, by id.
select *
  from runs
 where run_id in (select value from json_each(:run_ids::text[]))
   and owner = :worker_id;

-- workflow_id: what its caller calls a run.
select workflow_id from runs where run_id = :run_id;

-- owned_run_ids: everything this worker owns.
select run_id
  from runs
 where owner = :worker_id
   and closed_at is null
 order by run_id;

-- owned_workflows: everything this worker owns, and of which workflow it is.
select run_id, workflow
  from runs
 where owner = :worker_id
   and closed_at is null
 order by run_id;

-- owners: who owns open runs; from one to the next without what is between.
with recursive owners (owner) as (
    select min(owner)
      from runs indexed by runs_open
     where closed_at is null
       and owner is not null
    union all
    select (
             select min(runs.owner)
               from runs indexed by runs_open
              where closed_at is null
                and runs.owner > owners.owner
           )
      from owners
     where owner is not null
)
select owner from owners where owner is not null;

-- next_suspect: when the next free suspect of one queue becomes ripe.
select min(wake_at)
  from runs indexed by runs_suspected
 where queue = :queue
   and owner is null
   and wake_at is not null
   and losses >= 2
   and held is null
   and namespace = :namespace
   and workflow in (select value from json_each(:workflows::text[]));

-- children_of: the runs these runs have started.
select parent_id, run_id
  from runs
 where parent_id in (select value from json_each(:run_ids::text[]));

-- children_at: what these runs have started at these places; of those that continue one another, the first.
select parent_id, parent_place, min(run_id), min(workflow)
  from runs
 where parent_id in (select value from json_each(:run_ids::text[]))
   and parent_place in (select value from json_each(:places::text[]))
 group by parent_id, parent_place;

-- overdue: runs whose end by the clock has come; the index is named, or all runs of the namespace would be walked.
-- One whose timeout is over and that has something to undo is left to a worker with its code, unless that cannot go on.
select *
  from runs indexed by runs_closing
 where close_at <= :now::bigint
   and closed_at is null
   and namespace = :namespace
   and (close_as <> 'TIMED_OUT' or held in ('mismatch', 'quarantine') or undo is null or undo not like '%"state":"waiting"%')
 order by close_at, run_id
 limit :limit::bigint;

-- overdue_all: the same without a limit, since some of them may be unreadable.
select *
  from runs indexed by runs_closing
 where close_at <= :now::bigint
   and closed_at is null
   and namespace = :namespace
   and (close_as <> 'TIMED_OUT' or held in ('mismatch', 'quarantine') or undo is null or undo not like '%"state":"waiting"%')
 order by close_at, run_id;

-- next_close: when the next open run ends by the clock, after now.
select min(close_at)
  from runs indexed by runs_closing
 where close_at > :now::bigint
   and closed_at is null
   and namespace = :namespace;

-- held_counts: how many runs are held, by reason; the index is named, or all runs of the namespace would be walked.
select held, count(*)
  from runs indexed by runs_held
 where held is not null
   and namespace = :namespace
 group by held;

-- ended_or_held: which of these runs have ended, or are held.
select *
  from runs
 where run_id in (select value from json_each(:run_ids::text[]))
   and (closed_at is not null or held is not null)
 order by run_id;

-- suspect_kinds: the queues and workflows of free suspects that are due; there are few of them.
select distinct queue, workflow
  from runs indexed by runs_suspected
 where owner is null
   and wake_at is not null
   and losses >= 2
   and wake_at <= :now::bigint
   and namespace = :namespace;
