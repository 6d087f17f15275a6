-- What every database is asked of messages, with the types of parameters that are not text.
-- `at_once(…)` is ripe at once: the turn of this statement, or on Postgres the time given.

-- stops: what asks runs of this worker to stop, and is not heeded yet.
select inbox.number, inbox.message_id, inbox.kind, inbox.body, inbox.at, runs.run_id
  from runs
  join inbox on inbox.run_id = runs.run_id
 where runs.owner = :worker_id
   and runs.closed_at is null
   and inbox.taken_by is null
   and inbox.kind in ('CancelRequest', 'TerminateRequest')
 order by inbox.number;

-- move_messages: what a run has not read goes to the run that continues it; its children were its own.
update inbox
   set run_id = :to_run_id
 where run_id = :run_id
   and taken_by is null
   and kind in ('SignalSent', 'DeferredResult', 'DeferredFailure', 'RequestSent', 'CancelRequest', 'TerminateRequest',
                'PauseRequest', 'ResumeRequest');

-- move_known: so do the last signals and requests that were sent under an id and taken, so that none counts twice.
-- A request that has no answer by now never gets one.
update inbox
   set run_id = :to_run_id,
       answer = case when kind = 'RequestSent' then coalesce(answer, '{"type":"left"}') else answer end
 where number in (
         select number
           from (
                  select number
                    from inbox
                   where run_id = :run_id
                     and taken_by is not null
                     and message_id >= 'signal:'
                     and message_id < 'signal;'
                   order by number desc
                   limit 1000
                ) as signals
          union all
         select number
           from (
                  select number
                    from inbox
                   where run_id = :run_id
                     and taken_by is not null
                     and message_id >= 'request:'
                     and message_id < 'request;'
                   order by number desc
                   limit 10000
                ) as requests
       );

-- copy_messages: what was ever sent to a run is there, unread, for the run that has its past.
insert into inbox (namespace, run_id, message_id, kind, body, at)
select namespace, :to_run_id, message_id, kind, body, at
  from inbox
 where run_id = :run_id
   and kind in ('SignalSent', 'DeferredResult', 'DeferredFailure', 'RequestSent')
 order by number;

-- find_message: is this message in the inbox, and what does it say?
select number, kind, body
  from inbox
 where run_id = :run_id
   and message_id = :message_id;

-- count_unread: how many messages a run has not read, counted up to a number.
select count(*)
  from (select 1 from inbox where run_id = :run_id and taken_by is null limit :most::bigint) as counted;

-- unread_page: messages a run has not taken yet, after a number, and how many it has had by then.
select runs.messages, page.number, page.message_id, page.kind, page.body, page.at
  from runs
  left join (
         select number, message_id, kind, body, at
           from inbox
          where run_id = :run_id
            and taken_by is null
            and number > :after::bigint
          order by number
          limit :limit::bigint
       ) as page on true
 where runs.run_id = :run_id
 order by page.number;

-- unread_of: all that several runs have not taken yet.
select run_id, number, message_id, kind, body, at
  from inbox
 where run_id in (select value from json_each(:few_ids::text[]))
   and taken_by is null
 order by run_id, number;

-- deferreds_of: what the deferreds of a run were resolved with, taken or not.
select number, message_id, kind, body, at
  from inbox
 where run_id = :run_id
   and message_id >= 'deferred:'
   and message_id < 'deferred;'
 order by number;

-- unanswered_of: the requests that several runs have taken and not answered.
select run_id, message_id
  from inbox
 where run_id in (select value from json_each(:run_ids::text[]))
   and kind = 'RequestSent'
   and taken_by is not null
   and answer is null
 order by run_id, message_id;

-- answers: what became of requests, by their numbers, and whether their run has ended.
select inbox.number, inbox.answer, runs.closed_at is not null
  from inbox
  left join runs on runs.run_id = inbox.run_id
 where inbox.number in (select value from json_each(:numbers::bigint[]));

-- set_aside: the signals that are not what a run's code waits for; they became no event.
select number, message_id, kind, body, at
  from inbox
 where run_id = :run_id
   and taken_by = 0
   and kind = 'SignalSent'
 order by number;

-- unread_pause: whether a run is asked to pause and has not been held for that yet.
select 1
  from inbox
 where run_id = :run_id
   and taken_by is null
   and kind = 'PauseRequest'
 limit 1;
