-- 0018: views for people who look with SQL: readable times, and the names that filters use.
-- Safe before the new code runs: nothing else changes.

create view v_runs as
select run_id, namespace, workflow_id as id, workflow, queue, priority, status, held, step, entity_id, correlation_id,
       parent_id, attributes, owner, losses, messages,
       strftime('%Y-%m-%d %H:%M:%f', created_at / 1000.0, 'unixepoch') as created_at,
       strftime('%Y-%m-%d %H:%M:%f', begun_at / 1000.0, 'unixepoch') as begun_at,
       strftime('%Y-%m-%d %H:%M:%f', updated_at / 1000.0, 'unixepoch') as updated_at,
       strftime('%Y-%m-%d %H:%M:%f', closed_at / 1000.0, 'unixepoch') as closed_at,
       strftime('%Y-%m-%d %H:%M:%f', delayed_until / 1000.0, 'unixepoch') as delayed_until,
       strftime('%Y-%m-%d %H:%M:%f', close_at / 1000.0, 'unixepoch') as deadline_at,
       case when wake_at >= 0 then strftime('%Y-%m-%d %H:%M:%f', wake_at / 1000.0, 'unixepoch') end as wake_at
  from runs;

create view v_events as
select events.run_id, events.namespace, events.seq, events.kind, events.place,
       strftime('%Y-%m-%d %H:%M:%f', events.at / 1000.0, 'unixepoch') as at,
       coalesce(events.body, payloads.body) as body
  from events
  left join payloads on payloads.run_id = events.run_id and payloads.seq = events.seq;

create view v_messages as
select number, run_id, namespace, message_id, kind, body, taken_by,
       strftime('%Y-%m-%d %H:%M:%f', at / 1000.0, 'unixepoch') as at
  from inbox;

create view v_attempts as
select run_id, namespace, place, attempt, name, failure,
       strftime('%Y-%m-%d %H:%M:%f', at / 1000.0, 'unixepoch') as at,
       strftime('%Y-%m-%d %H:%M:%f', next_at / 1000.0, 'unixepoch') as next_at
  from attempts;

create view v_workers as
select worker_id, namespace, host, pid, queues, workflows,
       strftime('%Y-%m-%d %H:%M:%f', started_at / 1000.0, 'unixepoch') as started_at,
       strftime('%Y-%m-%d %H:%M:%f', lease_until / 1000.0, 'unixepoch') as lease_until
  from workers;

create view v_queues as
select namespace, queue, count(*) as open_runs, count(owner) as owned_runs, count(held) as held_runs,
       sum(owner is null and wake_at < 0) as ripe_runs,
       sum(owner is null and held is null and coalesce(wake_at, 0) >= 0) as waiting_runs
  from runs
 where closed_at is null
 group by namespace, queue;
