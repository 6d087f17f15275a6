-- Everything a batch can do. `:rows` becomes as many rows of parameters as the batch has;
-- unused ones are null and skipped. `at_once(…)` is ripe at once: the turn of this statement, or on Postgres the time given.
-- Who writes a time that has come by its own clock means at once: that clock may be ahead of all others.

-- fence: does this worker still hold this epoch?
select 1
  from workers
 where worker_id = :worker_id
   and epoch = :epoch;

-- insert_runs: new runs; a taken workflow_id or run_id inserts nothing.
insert into runs (run_id, namespace, workflow_id, workflow, queue, status, owner, wake_at, priority, input, seed, created_at, updated_at, begun_at)
select column1, column2, column3, column4, column5, column6, column7, case when column8 <= column12 then at_once(column8) else column8 end, column9, column10, column11, column12, column12, case when column7 is not null then column12 end
  from (values :rows)
 where column1 is not null
    on conflict do nothing;

-- insert_rich_runs: the same for runs that have a parent, an entity, a deadline or the like.
insert into runs (run_id, namespace, workflow_id, workflow, queue, status, owner, wake_at, priority, input, seed, created_at, updated_at, begun_at, parent_id, parent_place, on_parent_close, entity_id, correlation_id, attributes, initial_attributes, timeout_ms, delayed_until, close_at, close_as, continued_from)
select column1, column2, column3, column4, column5, column6, column7, case when column8 <= column12 then at_once(column8) else column8 end, column9, column10, column11, column12, column12, case when column7 is not null then column12 end, column13, column14, column15, column16, column17, column18, column18, column19, column20, column21, case when column21 is not null then 'TIMED_OUT' end, column22
  from (values :rows)
 where column1 is not null
    on conflict do nothing;

-- supersede_run: make way for another run under the same workflow_id.
update runs
   set is_latest = false
 where run_id = :run_id
   and (closed_at is not null or owner = :owner);

-- move_messages: what a run has not read goes to the run that continues it; its children were its own.
update inbox
   set run_id = :to_run_id
 where run_id = :run_id
   and taken_by is null
   and kind in ('SignalSent', 'CancelRequest', 'TerminateRequest');

-- move_known: so do the last signals that were sent under an id, taken or not, so that none counts twice.
update inbox
   set run_id = :to_run_id
 where number in (
         select number
           from inbox
          where run_id = :run_id
            and taken_by is not null
            and message_id >= 'signal:'
            and message_id < 'signal;'
          order by number desc
          limit 1000
       );

-- carry_cancel: a request to stop, and the end it set, hold for the run that continues.
update runs
   set cancel_requested_at = before.cancel_requested_at,
       cancel_reason = before.cancel_reason,
       close_as = case when before.close_as = 'CANCELLED' then 'CANCELLED' else runs.close_as end,
       close_at = case when before.close_as = 'CANCELLED' then before.close_at else runs.close_at end
  from (select * from runs where run_id = :run_id) as before
 where runs.run_id = :to_run_id
   and before.cancel_requested_at is not null;

-- count_messages: tell the run how many messages it was given.
update runs
   set messages = messages + (select count(*) from inbox where run_id = :to_run_id)
 where run_id = :to_run_id;

-- append_events: facts for runs this worker owns.
insert into events (namespace, run_id, seq, kind, place, at, body)
select column1, column2, column3, column4, column5, column6, column7
  from (values :rows)
 where column1 is not null;

-- put_payloads: bodies too large for their rows; a start that is written again finds its own there.
insert into payloads (namespace, run_id, seq, body)
select column1, column2, column3, column4
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
       waiting = null
  from (values :rows) as ended
 where run_id = ended.column1
   and owner = ended.column6;

-- close_free_run: close a run that nobody owns, for ever, and not before its last event, whatever the clock says.
update runs
   set status = :status,
       outcome = :outcome,
       last_seq = 1 + coalesce((select max(seq) from events where events.run_id = runs.run_id), 1),
       updated_at = greatest(:at, created_at, last.at),
       closed_at = greatest(:at, created_at, last.at),
       wake_at = null,
       waiting = null,
       held = null
  from (select coalesce((select at from events where run_id = :run_id order by seq desc limit 1), 0) as at) as last
 where run_id = :run_id
   and namespace = :namespace
   and owner is null
   and closed_at is null
   and (not :only_unbegun or (begun_at is null and status = 'PENDING'))
returning last_seq;

-- close_unbegun_children: those whose code was never called have nothing to clean up.
-- One place or all of them is a range here, so that the index serves both.
update runs
   set status = case when :all_terminate or on_parent_close = 'terminate' then 'TERMINATED' else 'CANCELLED' end,
       outcome = case when :all_terminate or on_parent_close = 'terminate' then :terminate else :cancel end,
       last_seq = 2,
       updated_at = greatest(:at, created_at),
       closed_at = greatest(:at, created_at),
       wake_at = null
 where parent_id = :run_id
   and parent_place between coalesce(:place, '') and coalesce(:place, :last_place)
   and closed_at is null
   and owner is null
   and begun_at is null
   and status = 'PENDING'
   and on_parent_close <> 'abandon';

-- stop_children: ask the open children of a run, or the one at this place, to stop, each as it was started to.
-- Those that were asked to cancel before are not asked again.
insert into inbox (namespace, run_id, message_id, kind, body, at)
select namespace,
       run_id,
       :message_id,
       case when :all_terminate or on_parent_close = 'terminate' then 'TerminateRequest' else 'CancelRequest' end,
       case when :all_terminate or on_parent_close = 'terminate' then :terminate else :cancel end,
       :at
  from runs
 where parent_id = :run_id
   and parent_place between coalesce(:place, '') and coalesce(:place, :last_place)
   and closed_at is null
   and on_parent_close <> 'abandon'
   and (:all_terminate or on_parent_close = 'terminate' or cancel_requested_at is null)
    on conflict do nothing
returning run_id, number, kind;

-- wake_children: make them ripe for it.
update runs
   set messages = messages + 1,
       wake_at = least(coalesce(wake_at, at_once(:at)), at_once(:at)),
       cancel_requested_at = coalesce(cancel_requested_at, :at),
       cancel_reason = coalesce(cancel_reason, :reason)
 where run_id in (select value from json_each(:run_ids));

-- note_cancel: a run was asked to stop; the earliest end by the clock is the one that holds.
update runs
   set cancel_requested_at = coalesce(cancel_requested_at, :at),
       cancel_reason = coalesce(cancel_reason, :reason),
       close_as = case when :close_at < coalesce(close_at, :close_at + 1) then 'CANCELLED' else close_as end,
       close_at = coalesce(least(close_at, :close_at), close_at, :close_at)
 where run_id = :run_id
   and closed_at is null;

-- annotate_runs: what workflows say of themselves.
update runs
   set attributes = note.column3,
       step = note.column4,
       waiting = null,
       updated_at = note.column5
  from (values :rows) as note
 where run_id = note.column1
   and owner = note.column2
returning run_id;

-- take_messages: these messages have become events.
update inbox
   set taken_by = taken.column2
  from (values :rows) as taken
 where number = taken.column1;

-- record_attempts: failed attempts that will be followed by another one.
insert into attempts (namespace, run_id, place, attempt, name, failure, at, next_at)
select column1, column2, column3, column4, column5, column6, column7, column8
  from (values :rows)
 where column1 is not null
    on conflict do nothing;

-- post_messages: put messages into the inboxes of open runs, in order; those that are there already are not put twice,
-- and none into one that may be full.
insert into inbox (namespace, run_id, message_id, kind, body, at)
select runs.namespace, runs.run_id, post.column2, post.column3, post.column4, post.column5
  from (values :rows) as post
  join runs on runs.run_id = post.column1
 where runs.closed_at is null
   and (post.column7 is null or runs.messages - runs.messages_read < post.column7)
 order by post.column6
    on conflict do nothing
returning number, run_id, message_id;

-- count_posted: tell the runs' rows how many messages came, and make them ripe; signals do not end a delay.
-- A delay that is not over has its time still; whatever the clock of whoever sends a signal says, it keeps that.
update runs
   set messages = messages + told.column2,
       wake_at = case
                   when told.column3 and begun_at is null and delayed_until is not null and wake_at is not null then wake_at
                   else least(coalesce(wake_at, at_once(told.column4)), at_once(told.column4))
                 end
  from (values :rows) as told
 where run_id = told.column1
returning run_id, messages;

-- find_message: is this message in the inbox?
select number
  from inbox
 where run_id = :run_id
   and message_id = :message_id;

-- run_owner: who owns a run, if it is there.
select owner
  from runs
 where run_id = :run_id
   and namespace = :namespace;

-- run_status: where a run stands, if it is there, and whether it has ended.
select status, closed_at is not null
  from runs
 where run_id = :run_id;

-- count_unread: how many messages a run has not read, counted up to a number.
select count(*)
  from (select 1 from inbox where run_id = :run_id and taken_by is null limit :most) as counted;

-- note_unread: how many that are.
update runs
   set messages_read = messages - :unread
 where run_id = :run_id;

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
select priority, wake_at, losses
  from runs indexed by runs_suspected
 where queue = :queue
   and owner is null
   and wake_at is not null
   and losses >= 2
   and wake_at <= :now
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
   and wake_at <= :now
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

-- resume_run: a held run goes on, and nothing is held against it any more.
update runs
   set held = null,
       held_report = null,
       status = 'PENDING',
       wake_at = at_once(:now),
       losses = 0,
       outlived = 0,
       deaths = null,
       updated_at = :now
 where run_id = :run_id
   and held is not null
   and owner is null
   and closed_at is null;

-- free_mismatches: give held runs another try; the code may be back.
-- The index is named, or all runs of these workflows would be walked.
update runs indexed by runs_held
   set held = null,
       held_report = null,
       status = 'PENDING',
       wake_at = at_once(:now)
 where held = 'mismatch'
   and namespace = :namespace
   and workflow in (select value from json_each(:workflows));

-- insert_worker: a worker begins, with epoch 1.
insert into workers (worker_id, namespace, epoch, lease_until, lease_ms, queues, host, pid, started_at, workflows)
values (:worker_id, :namespace, 1, :lease_until, :lease_ms, :queues, :host, :pid, :now, :names);

-- note_workflows: what a worker has code for by now.
update workers
   set workflows = :names
 where worker_id = :worker_id;

-- renew_worker: the worker is alive.
update workers
   set lease_until = :lease_until
 where worker_id = :worker_id
   and epoch = :epoch;

-- raise_own_epoch: fence out whatever this worker itself still has under way.
update workers
   set epoch = epoch + 1
 where worker_id = :worker_id
   and epoch = :epoch;

-- raise_epoch: fence out whatever another worker still has under way, if it has not stirred since.
update workers
   set epoch = epoch + 1
 where worker_id = :worker_id
   and epoch = :epoch
   and lease_until = :lease_until;

-- judge_worker: once for each worker that is lost, it is looked whether one of its runs is to blame.
update workers
   set judged_at = :now
 where worker_id = :worker_id
   and judged_at is null
returning cast(host as blob), cast(pid as integer);

-- suspects_of: the suspects a lost worker owned; two are as good as more.
select run_id, workflow_id, cast(deaths as blob), cast(losses as integer), cast(outlived as integer)
  from runs
 where owner = :worker_id
   and closed_at is null
   and losses >= 2
 limit 2;

-- noted_waiting: what a run was last seen to wait for.
select waiting from runs where run_id = :run_id;

-- tried: the activities of a run that have failed, and how often.
select place, name, max(attempt)
  from attempts
 where run_id = :run_id
 group by place, name
 order by place;

-- ended_places: which of these places in a run have an outcome.
select place
  from events
 where run_id = :run_id
   and place in (select value from json_each(:places));

-- last_recorded: a run's last event.
select seq, kind, place from events where run_id = :run_id order by seq desc limit 1;

-- reach_run: a run's row, for this transaction to change.
select 1 from runs where run_id = :run_id;

-- company_of: whether a lost worker owned a run beside this one and those that wait for it, their children's end.
with recursive family (run_id, parent_id) as (
    select run_id, parent_id
      from runs
     where run_id = :run_id
     union
    select runs.run_id, runs.parent_id
      from runs
      join family on runs.run_id = family.parent_id
)
select 1
  from runs
 where owner = :worker_id
   and closed_at is null
   and run_id not in (select run_id from family)
 limit 1;

-- pause_run: a run that was alone with its lost worker is tried again, but not at once.
update runs
   set owner = null,
       status = 'PENDING',
       wake_at = :wake_at,
       losses = losses + 1
 where run_id = :run_id
   and owner = :worker_id;

-- blame_run: a worker was lost with this run as its only suspect.
update runs
   set deaths = :deaths
 where run_id = :run_id;

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
       );

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
       );

-- delete_worker: a worker that owns nothing any more.
delete from workers
 where worker_id = :worker_id
   and not exists (select 1 from runs where owner = :worker_id and closed_at is null);
