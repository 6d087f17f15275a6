-- What SQLite is asked of messages in its own way. `:rows` becomes as many rows of parameters as the batch has;
-- unused ones are null and skipped. `at_once(…)` is ripe at once: the turn of this statement.
-- A time that has come by the clock of who writes it means at once: that clock may be ahead of all others.

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

-- take_messages: these messages have become events.
update inbox
   set taken_by = taken.column2
  from (values :rows) as taken
 where number = taken.column1;

-- answer_requests: what workflows say to callers that asked them; the first answer stays.
update inbox
   set answer = given.column3
  from (values :rows) as given
 where run_id = given.column1
   and message_id = given.column2
   and answer is null;

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

-- retake_messages: of the messages that were copied to a run, those are taken that became events which it has as well.
update inbox
   set taken_by = taken.taken_by - kept.column5,
       answer = taken.answer
  from (values :rows) as kept
  join inbox as taken on taken.run_id = kept.column1 and taken.taken_by between kept.column3 and kept.column4
 where inbox.run_id = kept.column2
   and inbox.message_id = taken.message_id;

-- keep_known: signals and requests that a run had from the one it continues, where they were taken, stay taken.
update inbox
   set taken_by = known.taken_by,
       answer = known.answer
  from inbox as known
 where inbox.run_id = :to_run_id
   and known.run_id = :run_id
   and known.message_id = inbox.message_id
   and known.taken_by > 0
   and known.kind in ('SignalSent', 'RequestSent')
   and exists (select 1 from runs where runs.run_id = :run_id and runs.continued_from is not null)
   and not exists (
         select 1
           from events
           left join payloads on events.body is null and payloads.run_id = events.run_id and payloads.seq = events.seq
          where events.run_id = :run_id
            and events.seq = known.taken_by
            and json_extract(coalesce(events.body, payloads.body), '$.message_id') = known.message_id
       );
