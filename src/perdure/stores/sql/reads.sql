-- run: one run's row.
select * from runs where run_id = :run_id and namespace = :namespace;

-- latest_run: the newest run of a workflow_id.
select * from runs where namespace = :namespace and workflow_id = :workflow_id and is_latest;

-- owned_runs: rows of runs this worker owns, by id.
select *
  from runs
 where run_id in (select value from json_each(:run_ids))
   and owner = :worker_id;

-- workflow_id: what its caller calls a run.
select workflow_id from runs where run_id = :run_id;

-- owned_run_ids: everything this worker owns.
select run_id
  from runs
 where owner = :worker_id
   and closed_at is null
 order by run_id;

-- events: a run's events after a number.
select events.seq, events.kind, events.place, events.at, coalesce(events.body, payloads.body) as body
  from events
  left join payloads on payloads.run_id = events.run_id and payloads.seq = events.seq
 where events.run_id = :run_id
   and events.seq > :after
 order by events.seq
 limit :limit;

-- events_of: the first events of these runs.
select events.run_id, events.seq, events.kind, events.place, events.at, coalesce(events.body, payloads.body) as body
  from events
  left join payloads on payloads.run_id = events.run_id and payloads.seq = events.seq
 where events.run_id in (select value from json_each(:run_ids))
   and events.seq <= :most
 order by events.run_id, events.seq;

-- payloads_of_events: the bodies of these runs' first events that are too large for their rows.
select run_id, seq, body
  from payloads
 where run_id in (select value from json_each(:run_ids))
   and seq > 1
   and seq <= :most;

-- payloads_of: the bodies too large for their rows; an input is that of event 1, an outcome that of the last one.
select payloads.run_id, payloads.seq, payloads.body
  from payloads
  join runs on runs.run_id = payloads.run_id
 where payloads.run_id in (select value from json_each(:run_ids))
   and (payloads.seq = 1 or payloads.seq = runs.last_seq);

-- last_event: number and time of a run's last event.
select seq, at from events where run_id = :run_id order by seq desc limit 1;

-- unread_page: messages a run has not taken yet, after a number, and how many it has had by then.
select runs.messages, page.number, page.message_id, page.kind, page.body, page.at
  from runs
  left join (
         select number, message_id, kind, body, at
           from inbox
          where run_id = :run_id
            and taken_by is null
            and number > :after
          order by number
          limit :limit
       ) as page on true
 where runs.run_id = :run_id
 order by page.number;

-- unread_of: all that several runs have not taken yet.
select run_id, number, message_id, kind, body, at
  from inbox
 where run_id in (select value from json_each(:few_ids))
   and taken_by is null
 order by run_id, number;

-- set_aside: the signals that are not what a run's code waits for; they became no event.
select number, message_id, kind, body, at
  from inbox
 where run_id = :run_id
   and taken_by = 0
   and kind = 'SignalSent'
 order by number;

-- new_messages: what came for this worker's runs after a number, and how many messages each has had.
select inbox.run_id, runs.messages, inbox.number, inbox.message_id, inbox.kind, inbox.body, inbox.at
  from inbox
  join runs on runs.run_id = inbox.run_id
 where inbox.number > :after
   and inbox.taken_by is null
   and runs.owner = :worker_id
 order by inbox.number;

-- last_message: the highest number given to a message.
select coalesce(max(number), 0) from inbox;

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

-- attempts: a run's failed attempts.
select place, attempt, name, failure, at, next_at
  from attempts
 where run_id = :run_id
 order by place, attempt;

-- attempts_of: the same for several runs.
select run_id, place, attempt, name, failure, at, next_at
  from attempts
 where run_id in (select value from json_each(:run_ids))
 order by run_id, place, attempt;

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

-- next_suspect: when the next free suspect of one queue becomes ripe.
select min(wake_at)
  from runs indexed by runs_suspected
 where queue = :queue
   and owner is null
   and wake_at is not null
   and losses >= 2
   and held is null
   and namespace = :namespace
   and workflow in (select value from json_each(:workflows));

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

-- children_of: the runs these runs have started.
select parent_id, run_id
  from runs
 where parent_id in (select value from json_each(:run_ids));

-- overdue: runs whose end by the clock has come; the index is named, or all runs of the namespace would be walked.
select *
  from runs indexed by runs_closing
 where close_at <= :now
   and closed_at is null
   and namespace = :namespace
 order by close_at, run_id
 limit :limit;

-- overdue_all: the same without a limit, since some of them may be unreadable.
select *
  from runs indexed by runs_closing
 where close_at <= :now
   and closed_at is null
   and namespace = :namespace
 order by close_at, run_id;

-- next_close: when the next open run ends by the clock, after now.
select min(close_at)
  from runs indexed by runs_closing
 where close_at > :now
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
 where run_id in (select value from json_each(:run_ids))
   and (closed_at is not null or held is not null)
 order by run_id;

-- workers: all workers.
select * from workers order by started_at, worker_id;
