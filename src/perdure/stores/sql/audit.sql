-- What must be true of every database, whatever happened to its workers. Each query finds what breaks its
-- sentence, as the run_id, the workflow_id and what is wrong. All are asked within one read transaction.
-- trouble_in_fact, …_message, …_outcome, …_failure, …_deaths and …_json are functions of the auditor; they read as the
-- engine does, and say why that fails, if it does. They are given bytes, for what is no text could not be given to them.

-- homeless: every event, message, payload, attempt, progress, snapshot and stream belongs to a run that is there.
select run_id, null, 'has ' || what || ', but no row of its own'
  from (
         select run_id, 'events' as what from (select distinct run_id from events)
          union all
         select run_id, 'messages' from (select distinct run_id from inbox)
          union all
         select run_id, 'payloads' from (select distinct run_id from payloads)
          union all
         select run_id, 'attempts' from (select distinct run_id from attempts)
          union all
         select run_id, 'progress' from (select distinct run_id from progress)
          union all
         select run_id, 'a snapshot' from snapshots
          union all
         select run_id, 'streams' from (select distinct run_id from stream_heads)
          union all
         select run_id, 'values in streams' from (select distinct run_id from streams)
       ) as rows
 where not exists (select 1 from runs where runs.run_id = rows.run_id);

-- namespaces: all rows of a run, its parent and its owner are in the namespace of the run.
select runs.run_id, runs.workflow_id, 'is in ' || runs.namespace || ', but its ' || what || ' in ' || rows.namespace
  from (
         select run_id, namespace, 'event ' || seq as what from events
          union all
         select run_id, namespace, 'message ' || message_id from inbox
          union all
         select run_id, namespace, 'payload ' || seq from payloads
          union all
         select run_id, namespace, 'attempt ' || attempt || ' at ' || place from attempts
          union all
         select run_id, namespace, 'progress at ' || place from progress
          union all
         select run_id, namespace, 'snapshot' from snapshots
          union all
         select run_id, namespace, 'stream ' || name from stream_heads
          union all
         select run_id, namespace, 'value ' || n || ' of the stream ' || name from streams
       ) as rows
  join runs on runs.run_id = rows.run_id
 where runs.namespace <> rows.namespace
 union all
select child.run_id, child.workflow_id, 'is in ' || child.namespace || ', but its parent in ' || parent.namespace
  from runs as child
  join runs as parent on parent.run_id = child.parent_id
 where child.namespace <> parent.namespace
 union all
select runs.run_id, runs.workflow_id, 'is in ' || runs.namespace || ', but its owner in ' || workers.namespace
  from runs
  join workers on workers.worker_id = runs.owner
 where runs.namespace <> workers.namespace;

-- event_numbers: the events of a run are numbered from 2 on, without a gap.
select counted.run_id, workflow_id, 'has ' || events || ' events, numbered ' || first || ' to ' || last
  from (
         select run_id, count(*) as events, min(seq) as first, max(seq) as last
           from events
          group by run_id
         having min(seq) <> 2
             or max(seq) <> count(*) + 1
       ) as counted
  left join runs on runs.run_id = counted.run_id;

-- event_order: events are numbered in the order in which they were written.
select ordered.run_id, workflow_id, 'event ' || seq || ' was written before event ' || (seq - 1)
  from (
         select run_id, seq, id, lag(id) over (partition by run_id order by seq) as before
           from events
       ) as ordered
  left join runs on runs.run_id = ordered.run_id
 where id < before;

-- event_times: the times of a history never go back.
select timed.run_id, workflow_id, 'event ' || seq || ' is ' || (before - at) || ' ms before the one before it'
  from (
         select run_id, seq, at, lag(at) over (partition by run_id order by seq) as before
           from events
       ) as timed
  left join runs on runs.run_id = timed.run_id
 where at < before
 union all
select run_id, workflow_id, 'was closed ' || (last - closed_at) || ' ms before its last event'
  from (
         select run_id, workflow_id, closed_at,
                (select at from events where events.run_id = runs.run_id order by seq desc limit 1) as last
           from runs
          where closed_at is not null
       )
 where closed_at < last;

-- event_kinds: every event is of a kind that this Perdure knows.
select events.run_id, workflow_id,
       'event ' || seq || ' is of the kind ' || kind || ', which this Perdure does not know'
  from events
  left join runs on runs.run_id = events.run_id
 where not is_kind_of_fact(cast(kind as blob));

-- event_bodies: every event can be read as what it says it is.
select run_id, workflow_id, 'event ' || seq || ' cannot be read as ' || kind || ': ' || trouble
  from (
         select events.run_id, workflow_id, events.seq, kind,
                trouble_in_fact(cast(kind as blob), cast(coalesce(events.body, payloads.body) as blob)) as trouble
           from events
           left join payloads on events.body is null and payloads.run_id = events.run_id and payloads.seq = events.seq
           left join runs on runs.run_id = events.run_id
          where coalesce(events.body, payloads.body) is not null
            and is_kind_of_fact(cast(kind as blob))
       )
 where trouble is not null;

-- places: what a run calls at one place has one outcome.
select events.run_id, workflow_id, count(*) || ' events answer the call at ' || place
  from (
         select run_id
           from events
          where place <> ''
          group by run_id
         having count(*) <> count(distinct place)
       ) as doubled
  join events on events.run_id = doubled.run_id
  left join runs on runs.run_id = events.run_id
 where place <> ''
 group by events.run_id, place
having count(*) > 1;

-- last_seq: the number of its last event is known of a closed run, follows its events, and of no other.
select run_id, workflow_id,
       case when closed_at is null
            then 'is open, but ended with event ' || last_seq
            else 'ended with event ' || coalesce(last_seq, 'of no number') || ' after event ' || last
       end
  from (
         select run_id, workflow_id, closed_at, last_seq,
                coalesce((select max(seq) from events where events.run_id = runs.run_id), 1) as last
           from runs
       )
 where case when closed_at is null then last_seq is not null else last_seq is not last + 1 end;

-- statuses: a run has a status that exists, an open one while it is open, and a time of its end when it has ended.
select run_id, workflow_id,
       'is ' || status || case when closed_at is null then ', but has not ended' else ', but has ended' end
  from runs
 where case
         when status in ('PENDING', 'RUNNING', 'SUSPENDED') then closed_at is not null
         when status in ('COMPLETED', 'FAILED', 'CANCELLED', 'TERMINATED', 'TIMED_OUT', 'CONTINUED')
         then closed_at is null
         else 1
       end;

-- outcomes: a closed run has an outcome that can be read, an open one has none.
select runs.run_id, workflow_id,
       case when closed_at is null
            then 'is open, but has an outcome'
            else 'is ' || status || ', but its outcome cannot be read as that: '
              || trouble_in_outcome(cast(status as blob), cast(coalesce(outcome, payloads.body) as blob))
       end
  from runs
  left join payloads on runs.outcome is null and payloads.run_id = runs.run_id and payloads.seq = runs.last_seq
 where case
         when closed_at is null then outcome is not null
         when coalesce(outcome, payloads.body) is null then 0
         else trouble_in_outcome(cast(status as blob), cast(coalesce(outcome, payloads.body) as blob)) is not null
       end;

-- values: what a run was started with, waits for and says of itself can be read.
select run_id, workflow_id, 'its ' || name || ' cannot be read: ' || trouble
  from (
         select runs.run_id, workflow_id, names.column1 as name,
                case names.column1
                  when 'input' then trouble_in_json(cast(coalesce(runs.input, payloads.body, 'null') as blob))
                  when 'attributes' then trouble_in_json(cast(coalesce(attributes, '{}') as blob))
                  when 'initial_attributes' then trouble_in_json(cast(coalesce(initial_attributes, '{}') as blob))
                  when 'waiting' then trouble_in_json(cast(coalesce(waiting, '[]') as blob))
                  when 'deaths' then trouble_in_deaths(cast(coalesce(deaths, '[]') as blob))
                  else trouble_in_json(cast(coalesce(held_report, 'null') as blob))
                end as trouble
           from (
                  values ('input'), ('attributes'), ('initial_attributes'), ('waiting'), ('deaths'), ('held_report')
                ) as names
           join runs
           left join payloads
             on names.column1 = 'input' and runs.input is null and payloads.run_id = runs.run_id and payloads.seq = 1
       )
 where trouble is not null;

-- final: a closed run has no owner, no time to wake at, waits for nothing and is not held.
select run_id, workflow_id,
       'is ' || status || ', but ' || case
         when owner is not null then 'owned by ' || owner
         when typeof(wake_at) = 'integer' and wake_at < 0 then 'is ripe'
         when typeof(wake_at) = 'integer' then 'is to wake at ' || datetime(wake_at / 1000, 'unixepoch') || ' UTC'
         when wake_at is not null then 'is to wake at ' || quote(wake_at)
         when waiting is not null then 'waits for something'
         else 'is held for ' || held
       end
  from runs
 where closed_at is not null
   and (owner is not null or wake_at is not null or waiting is not null or held is not null);

-- owners: who owns a run is a worker that is there.
select run_id, workflow_id, 'is owned by ' || owner || ', which is no worker'
  from runs
 where closed_at is null
   and owner is not null
   and not exists (select 1 from workers where worker_id = owner);

-- running: an open run is RUNNING when it has an owner, and only then.
select run_id, workflow_id, 'is ' || status || coalesce(', but owned by ' || owner, ', but nobody owns it')
  from runs
 where closed_at is null
   and (status = 'RUNNING') <> (owner is not null);

-- begun: of a run that has done something it is known since when; one may be paused before.
select run_id, workflow_id, 'is ' || status || ', but is not known to have begun'
  from runs
 where begun_at is null
   and (
         status in ('RUNNING', 'COMPLETED', 'FAILED', 'CONTINUED')
         or (status = 'SUSPENDED' and coalesce(held, '') <> 'paused')
         or exists (select 1 from events where events.run_id = runs.run_id)
       );

-- latest: of the runs of one id exactly one is the latest, and the earlier ones have ended.
select run_id, workflow_id, 'is not the latest of its id, but still open'
  from runs
 where not is_latest
   and closed_at is null
 union all
select run_id, workflow_id, 'is not the latest of its id, but there is none after it'
  from runs
 where not is_latest
   and not exists (
         select 1
           from runs as latest
          where latest.namespace = runs.namespace
            and latest.workflow_id = runs.workflow_id
            and latest.is_latest
       )
 union all
select max(run_id), workflow_id, 'is one of ' || count(*) || ' latest runs of its id'
  from runs
 where is_latest
 group by namespace, workflow_id
having count(*) > 1;

-- one_open: an id has at most one open run.
select max(run_id), workflow_id, 'is one of ' || count(*) || ' open runs of its id'
  from runs
 where closed_at is null
 group by namespace, workflow_id
having count(*) > 1;

-- ripe: a run that nobody owns and nothing holds back is ripe or says what it waits for.
select run_id, workflow_id,
       case status when 'PENDING' then 'is PENDING, but never ripe' else 'is SUSPENDED, but waits for nothing' end
  from runs
 where closed_at is null
   and owner is null
   and held is null
   and case status when 'PENDING' then wake_at is null when 'SUSPENDED' then waiting is null else 0 end;

-- woken_by_messages: a parked run wakes for a message it waits for, and for a request to stop.
select runs.run_id, workflow_id, 'sleeps on, though ' || inbox.kind || ' ' || message_id || ' is there for it'
  from runs
  join inbox on inbox.run_id = runs.run_id
 where runs.closed_at is null
   and runs.owner is null
   and runs.held is null
   and runs.wake_at is null
   and inbox.taken_by is null
   and case inbox.kind
         when 'TerminateRequest' then 1
         when 'CancelRequest' then not exists (
           select 1 from events where events.run_id = runs.run_id and events.kind = 'CancelRequested'
         )
         else exists (
           select 1
             from json_each(case when json_valid(runs.waiting) then runs.waiting else '[]' end) as call
            where case
                    when call.type <> 'object' or not json_valid(inbox.body) then 0
                    when inbox.kind in ('SignalSent', 'DeferredResult', 'DeferredFailure', 'RequestSent')
                    then json_extract(call.value, '$.kind')
                         = case inbox.kind when 'SignalSent' then 'signal' when 'RequestSent' then 'request' else 'deferred' end
                     and json_extract(call.value, '$.name') = json_extract(inbox.body, '$.name')
                    else json_extract(call.value, '$.kind') = 'child'
                     and json_extract(call.value, '$.place') = json_extract(inbox.body, '$.place')
                  end
         )
       end;

-- woken_by_time: a parked run wakes no later than the first of what it waits for by the clock.
select run_id, workflow_id,
       'waits until ' || datetime(until / 1000, 'unixepoch') || ' UTC'
       || coalesce(', but wakes ' || round((wake_at - until) / 1000.0, 3) || ' s later', ', but never wakes')
  from (
         select run_id, workflow_id, wake_at,
                (
                  select min(case when type = 'object' and json_type(value, '$.until') = 'integer'
                                  then json_extract(value, '$.until')
                             end)
                    from json_each(case when json_valid(waiting) then waiting else '[]' end)
                ) as until
           from runs
          where closed_at is null
            and owner is null
            and held is null
            and status = 'SUSPENDED'
            and typeof(wake_at) in ('integer', 'null')
       )
 where until < coalesce(wake_at, until + 1);

-- held: a run that is held has a reason, is SUSPENDED, and nobody owns it.
select run_id, workflow_id,
       'is held for ' || quote(held) || ', but is ' || status || coalesce(' and owned by ' || owner, '')
  from runs
 where held is not null
   and (trim(held) = '' or status <> 'SUSPENDED' or owner is not null);

-- timers: no timer fired before its time.
select run_id, workflow_id, 'event ' || seq || ' fired ' || (fire_at - at) || ' ms too early'
  from (
         select events.run_id, workflow_id, seq, at,
                case when json_valid(body) then json_extract(body, '$.fire_at') end as fire_at
           from events
           left join runs on runs.run_id = events.run_id
          where kind = 'TimerFired'
       )
 where at < fire_at;

-- taken_messages: a message that was taken has become the event that says so.
-- Signals with an id and requests go on with the run that continues, and keep the numbers of events they became.
select inbox.run_id, workflow_id,
       inbox.kind || ' ' || message_id || ' is said to be event ' || taken_by
       || coalesce(', a ' || events.kind, ', which is not there')
  from inbox
  join runs on runs.run_id = inbox.run_id
  left join events on events.run_id = inbox.run_id and events.seq = inbox.taken_by
  left join payloads on events.body is null and payloads.run_id = events.run_id and payloads.seq = events.seq
 where taken_by <> 0
   and not (continued_from is not null and (message_id glob 'signal:*' or message_id glob 'request:*'))
   and case
         when events.id is null then 1
         when not json_valid(inbox.body) or not json_valid(coalesce(events.body, payloads.body)) then 0
         when inbox.kind in ('SignalSent', 'RequestSent')
         then events.kind <> case inbox.kind when 'SignalSent' then 'SignalReceived' else 'RequestReceived' end
           or json_extract(coalesce(events.body, payloads.body), '$.message_id') is not message_id
         when inbox.kind in ('ChildResult', 'ChildFailure')
         then events.kind <> case inbox.kind when 'ChildResult' then 'ChildCompleted' else 'ChildFailed' end
           or events.place is not json_extract(inbox.body, '$.place')
         when inbox.kind in ('DeferredResult', 'DeferredFailure')
         then events.kind <> case inbox.kind when 'DeferredResult' then 'DeferredResolved' else 'DeferredFailed' end
           or json_extract(coalesce(events.body, payloads.body), '$.name') is not json_extract(inbox.body, '$.name')
         else inbox.kind <> 'CancelRequest' or events.kind <> 'CancelRequested'
       end;

-- taken_once: no two messages have become the same event.
select inbox.run_id, workflow_id, count(*) || ' messages are said to be event ' || taken_by
  from inbox
  join runs on runs.run_id = inbox.run_id
 where taken_by > 0
   and not (continued_from is not null and (message_id glob 'signal:*' or message_id glob 'request:*'))
 group by inbox.run_id, taken_by
having count(*) > 1;

-- received_signals: a signal or a request that a history knows of is taken, and by no other event.
select run_id, workflow_id, 'event ' || seq || ' is message ' || message_id || ', which could be taken once more'
  from (
         select events.run_id, workflow_id, status, events.seq,
                case when json_valid(coalesce(events.body, payloads.body))
                     then json_extract(coalesce(events.body, payloads.body), '$.message_id')
                end as message_id
           from events
           join runs on runs.run_id = events.run_id
           left join payloads on events.body is null and payloads.run_id = events.run_id and payloads.seq = events.seq
          where kind in ('SignalReceived', 'RequestReceived')
       ) as received
 where message_id is not null
   and not (status = 'CONTINUED' and (message_id glob 'signal:*' or message_id glob 'request:*'))
   and not exists (
         select 1
           from inbox
          where inbox.run_id = received.run_id
            and inbox.message_id = received.message_id
            and inbox.taken_by = received.seq
       );

-- message_counts: a run knows how many messages it was given; one that continues elsewhere may have handed some on.
select run_id, workflow_id, 'has ' || found || ' messages, but knows of ' || messages
  from (
         select run_id, workflow_id, status, messages,
                (select count(*) from inbox where inbox.run_id = runs.run_id) as found
           from runs
       )
 where case status when 'CONTINUED' then messages < found else messages <> found end;

-- message_kinds: every message is of a kind that this Perdure knows.
select inbox.run_id, workflow_id,
       'message ' || number || ' is of the kind ' || kind || ', which this Perdure does not know'
  from inbox
  left join runs on runs.run_id = inbox.run_id
 where not is_kind_of_message(cast(kind as blob));

-- message_bodies: every message can be read as what it says it is.
select run_id, workflow_id, kind || ' ' || message_id || ' cannot be read: ' || trouble
  from (
         select inbox.run_id, workflow_id, kind, message_id,
                trouble_in_message(cast(kind as blob), cast(body as blob)) as trouble
           from inbox
           left join runs on runs.run_id = inbox.run_id
          where is_kind_of_message(cast(kind as blob))
       )
 where trouble is not null;

-- stream_numbers: the values of a stream are numbered without a gap, from where its run begins up to its head.
select counted.run_id, workflow_id,
       'has ' || found || ' values in the stream ' || counted.name || ', numbered ' || first || ' to ' || last
         || ', and its head is ' || coalesce(stream_heads.n, 'lost')
  from (
         select run_id, name, count(*) as found, min(n) as first, max(n) as last
           from streams
          group by run_id, name
       ) as counted
  left join runs on runs.run_id = counted.run_id
  left join stream_heads
    on stream_heads.run_id = counted.run_id and stream_heads.name = counted.name and stream_heads.source = ''
 where found <> last - first + 1
    or coalesce(stream_heads.n, 0) <> last
    or (first <> 1 and continued_from is null);

-- snapshots: what a run shows is not ahead of its history, and can be read.
select snapshots.run_id, workflow_id,
       case when trouble_in_json(cast(body as blob)) is not null then 'what it shows cannot be read'
            else 'shows what it was after event ' || snapshots.seq || ', which it does not have' end
  from snapshots
  left join runs on runs.run_id = snapshots.run_id
 where trouble_in_json(cast(body as blob)) is not null
    or snapshots.seq > coalesce((select max(seq) from events where events.run_id = snapshots.run_id), 1);

-- attempts: the failed attempts of a call are numbered from 1 on, without a gap, and can be read.
select counted.run_id, workflow_id,
       'has ' || failed || ' failed attempts at ' || place || ', numbered ' || first || ' to ' || last
  from (
         select run_id, place, count(*) as failed, min(attempt) as first, max(attempt) as last
           from attempts
          group by run_id, place
         having min(attempt) <> 1
             or max(attempt) <> count(*)
       ) as counted
  left join runs on runs.run_id = counted.run_id
 union all
select attempts.run_id, workflow_id,
       'the failure of attempt ' || attempt || ' at ' || place || ' cannot be read: '
       || trouble_in_failure(cast(failure as blob))
  from attempts
  left join runs on runs.run_id = attempts.run_id
 where trouble_in_failure(cast(failure as blob)) is not null;

-- counted_attempts: an activity's outcome counts the attempts that failed before, and itself.
select run_id, workflow_id, 'event ' || seq || ' counts ' || counted || ' attempts, but ' || failed || ' failed before'
  from (
         select events.run_id, workflow_id, events.seq,
                case when json_valid(coalesce(events.body, payloads.body))
                     then coalesce(json_extract(coalesce(events.body, payloads.body), '$.attempts'), 1)
                end as counted,
                (
                  select count(*)
                    from attempts
                   where attempts.run_id = events.run_id
                     and attempts.place = events.place
                ) as failed
           from events
           left join payloads on events.body is null and payloads.run_id = events.run_id and payloads.seq = events.seq
           left join runs on runs.run_id = events.run_id
          where events.kind in ('ActivityCompleted', 'ActivityFailed')
       )
 where counted <> failed + 1;

-- payloads: what is too large for its row is that of an event, an input or an outcome.
select payloads.run_id, workflow_id, 'has a payload ' || seq || ', which belongs to nothing'
  from payloads
  left join runs on runs.run_id = payloads.run_id
 where not exists (
         select 1
           from events
          where events.run_id = payloads.run_id
            and events.seq = payloads.seq
            and events.body is null
       )
   and not (seq = 1 and runs.input is null)
   and not (seq = coalesce(runs.last_seq, 0) and runs.outcome is null);

-- kept_values: what is not in its row is a payload.
select events.run_id, workflow_id, 'event ' || events.seq || ' has lost its body'
  from events
  left join runs on runs.run_id = events.run_id
 where body is null
   and not exists (select 1 from payloads where payloads.run_id = events.run_id and payloads.seq = events.seq)
 union all
select run_id, workflow_id, 'has lost its input'
  from runs
 where input is null
   and not exists (select 1 from payloads where payloads.run_id = runs.run_id and seq = 1)
 union all
select run_id, workflow_id, 'has lost its outcome'
  from runs
 where closed_at is not null
   and outcome is null
   and not exists (select 1 from payloads where payloads.run_id = runs.run_id and seq = runs.last_seq);

-- parents: a child has a parent that is there, a place in it, and knows what its parent's end means.
select run_id, workflow_id,
       case
         when parent_id is null then 'has a place in a parent, but no parent'
         when parent_place is null or coalesce(on_parent_close, '') not in ('cancel', 'terminate', 'abandon')
         then 'is a child, but its place or what its parent''s end means is not known'
         else 'is a child of ' || parent_id || ', which is not there'
       end
  from runs
 where case
         when parent_id is null then parent_place is not null
         else parent_place is null
           or coalesce(on_parent_close, '') not in ('cancel', 'terminate', 'abandon')
           or not exists (select 1 from runs as parent where parent.run_id = runs.parent_id)
       end;

-- children_once: at one place a run starts one child.
select parent_id, (select workflow_id from runs as parent where parent.run_id = runs.parent_id),
       'has started ' || count(*) || ' children at ' || parent_place
  from runs
 where parent_id is not null
   and continued_from is null
 group by parent_id, parent_place
having count(*) > 1;

-- told_parents: a child that has ended has told its parent.
-- One that never began was called off by the parent itself.
select child.run_id, child.workflow_id, 'has ended, but its parent ' || parent.workflow_id || ' was not told'
  from runs as child
  join runs as parent on parent.run_id = child.parent_id
 where child.parent_id is not null
   and child.closed_at is not null
   and child.status <> 'CONTINUED'
   and child.begun_at is not null
   and parent.closed_at is null
   and not exists (
         select 1
           from inbox
          where inbox.run_id = parent.run_id
            and inbox.message_id = 'child:' || child.run_id
       );

-- told_ends: what a run is told of a child is how that child has ended.
select inbox.run_id, runs.workflow_id,
       'was told ' || inbox.kind || ' of ' || substr(message_id, 7)
       || coalesce(', which is ' || child.status, ', which is not there')
  from inbox
  left join runs on runs.run_id = inbox.run_id
  left join runs as child on child.run_id = substr(message_id, 7)
 where inbox.kind in ('ChildResult', 'ChildFailure')
   and (child.closed_at is null or (child.status = 'COMPLETED') <> (inbox.kind = 'ChildResult'))
 union all
select events.run_id, runs.workflow_id, 'event ' || events.seq || ' has the result of a child that is not COMPLETED'
  from events
  left join runs on runs.run_id = events.run_id
  left join payloads on events.body is null and payloads.run_id = events.run_id and payloads.seq = events.seq
 where kind = 'ChildCompleted'
   and json_valid(coalesce(events.body, payloads.body))
   and not exists (
         select 1
           from runs as child
          where child.run_id = case when json_valid(coalesce(events.body, payloads.body))
                                    then json_extract(coalesce(events.body, payloads.body), '$.run_id')
                               end
            and child.status = 'COMPLETED'
       );

-- orphans: the open children of a run that has ended were asked to stop, unless they are to outlive it.
select child.run_id, child.workflow_id, 'goes on, though its parent ' || parent.workflow_id || ' has ended'
  from runs as child
  join runs as parent on parent.run_id = child.parent_id
 where child.parent_id is not null
   and child.closed_at is null
   and child.on_parent_close <> 'abandon'
   and child.cancel_requested_at is null
   and parent.closed_at is not null;

-- successors: a run that is CONTINUED names the run that goes on, which is there under the same id.
select run_id, workflow_id, 'is continued by ' || coalesce(next_id, 'nobody') || ', which does not go on from it'
  from (
         select runs.*, case when json_valid(outcome) then json_extract(outcome, '$.run_id') end as next_id
           from runs
          where status = 'CONTINUED'
       ) as before
 where is_latest
    or not exists (
         select 1
           from runs as next
          where next.run_id = before.next_id
            and next.continued_from = before.run_id
            and next.namespace = before.namespace
            and next.workflow_id = before.workflow_id
       );

-- predecessors: a run that goes on from another is the one that this one names.
select run_id, workflow_id, 'goes on from ' || continued_from || ', which does not say so'
  from runs
 where continued_from is not null
   and not exists (
         select 1
           from runs as before
          where before.run_id = runs.continued_from
            and before.status = 'CONTINUED'
            and case when json_valid(before.outcome) then json_extract(before.outcome, '$.run_id') end = runs.run_id
       );

-- ends_by_the_clock: a run that must end by some time has that time, and what it ends as.
select run_id, workflow_id,
       'must end at ' || coalesce(close_at, 'no time') || ' as ' || coalesce(close_as, 'nothing')
       || coalesce(', its timeout is ' || timeout_ms || ' ms', '')
  from runs
 where (close_at is null) <> (close_as is null)
    or close_as not in ('TIMED_OUT', 'CANCELLED')
    or (timeout_ms is not null and close_at is null);

-- cancels: of a run that was asked to stop it is known since when.
select run_id, workflow_id, 'was asked to stop, but it is not known when'
  from runs
 where cancel_requested_at is null
   and (cancel_reason is not null or close_as = 'CANCELLED')
 union all
select events.run_id, workflow_id, 'was asked to stop by event ' || seq || ', but its row does not show it'
  from events
  join runs on runs.run_id = events.run_id
 where kind = 'CancelRequested'
   and cancel_requested_at is null;

-- workers: a worker has an epoch, which begins with 1, and queues that can be read.
select null, null, 'worker ' || worker_id || ' has epoch ' || epoch || ' and queues ' || queues
  from workers
 where epoch < 1
    or trouble_in_json(cast(queues as blob)) is not null;
