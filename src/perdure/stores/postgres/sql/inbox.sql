-- What Postgres is asked of messages in its own way: rows come as JSON, others write at the same time, and a row
-- that another transaction holds is left for the next look.

-- take_messages: these messages have become events.
update inbox
   set taken_by = (r ->> 1)::bigint
  from jsonb_array_elements(:rows::jsonb) as r
 where number = (r ->> 0)::bigint;

-- answer_requests: what workflows say to callers that asked them; the first answer stays.
update inbox
   set answer = r ->> 2
  from jsonb_array_elements(:rows::jsonb) as r
 where run_id = r ->> 0
   and message_id = r ->> 1
   and answer is null;

-- post_messages: put messages into the inboxes of open runs, in order; those that are there already are not put twice,
-- and none into one that may be full.
-- The runs are held before any number is given: of one run's messages none with a lower number comes later.
with given as materialized (
    select r ->> 0 as run_id, r ->> 1 as message_id, r ->> 2 as kind, r ->> 3 as body, (r ->> 4)::bigint as at, (r ->> 5)::bigint as place, (r ->> 6)::bigint as room
      from jsonb_array_elements(:rows::jsonb) as r
), open as materialized (
    select namespace, run_id, messages - messages_read as unread
      from runs
     where run_id in (select run_id from given)
       and closed_at is null
     order by run_id
       for no key update
)
insert into inbox (namespace, run_id, message_id, kind, body, at)
select open.namespace, open.run_id, given.message_id, given.kind, given.body, given.at
  from given
  join open on open.run_id = given.run_id
 where given.room is null
    or open.unread < given.room
 order by given.place
    on conflict do nothing
returning number, run_id, message_id, kind, at;

-- stop_children: ask the open children of a run, or the one at this place, to stop, each as it was started to.
-- Those that were asked to cancel before are not asked again.
with asked as materialized (
    select namespace, run_id, (:all_terminate::boolean or on_parent_close = 'terminate') as terminates, parent_place
      from runs
     where parent_id = :run_id
       and parent_place between coalesce(:place, '') and coalesce(:place, :last_place)
       and closed_at is null
       and on_parent_close <> 'abandon'
       and (:all_terminate::boolean or on_parent_close = 'terminate' or cancel_requested_at is null)
     order by parent_place, run_id
       for no key update
)
insert into inbox (namespace, run_id, message_id, kind, body, at)
select namespace,
       run_id,
       :message_id,
       case when terminates then 'TerminateRequest' else 'CancelRequest' end,
       case when terminates then :terminate else :cancel end,
       :at::bigint
  from asked
 order by parent_place, run_id
    on conflict do nothing
returning run_id, number, kind;

-- last_message: up to which transaction everybody's messages can be seen: the oldest one that is still open.
select pg_snapshot_xmin(pg_current_snapshot())::text::bigint;

-- new_messages: what came for this worker's runs by transactions that were open at the last look, or began after it.
-- By transaction, and then run by run: many messages may never be asked for, and are not walked over at every look.
with fresh as materialized (
    select run_id, number, message_id, kind, body, at
      from inbox
     where xid >= (:after::bigint)::text::xid8
       and taken_by is null
     order by xid
)
select fresh.run_id, owned.messages, fresh.number, fresh.message_id, fresh.kind, fresh.body, fresh.at
  from fresh
  join lateral (
         select messages
           from runs
          where run_id = fresh.run_id
            and owner = :worker_id
          limit 1
       ) as owned on true
 order by fresh.number;

-- retake_messages: of the messages that were copied to a run, those are taken that became events which it has as well.
update inbox
   set taken_by = taken.taken_by - (r ->> 4)::bigint,
       answer = taken.answer
  from jsonb_array_elements(:rows::jsonb) as r
  join inbox as taken on taken.run_id = r ->> 0 and taken.taken_by between (r ->> 2)::bigint and (r ->> 3)::bigint
 where inbox.run_id = r ->> 1
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
            and coalesce(events.body, payloads.body)::json ->> 'message_id' = known.message_id
       );
