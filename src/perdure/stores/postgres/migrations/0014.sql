-- 0014: views for people who look with SQL: readable times, and the names that filters use.
-- Safe before the new code runs: nothing else changes.

create view {schema}.v_runs as
select run_id, namespace, workflow_id as id, workflow, queue, priority, status, held, step, entity_id, correlation_id,
       parent_id, attributes, owner, losses, messages,
       to_timestamp(created_at / 1000.0) as created_at,
       to_timestamp(begun_at / 1000.0) as begun_at,
       to_timestamp(updated_at / 1000.0) as updated_at,
       to_timestamp(closed_at / 1000.0) as closed_at,
       to_timestamp(delayed_until / 1000.0) as delayed_until,
       to_timestamp(close_at / 1000.0) as deadline_at,
       to_timestamp(wake_at / 1000.0) as wake_at
  from {schema}.runs;

create view {schema}.v_events as
select events.run_id, events.namespace, events.seq, events.kind, events.place,
       to_timestamp(events.at / 1000.0) as at,
       coalesce(events.body, payloads.body) as body
  from {schema}.events
  left join {schema}.payloads on payloads.run_id = events.run_id and payloads.seq = events.seq;

create view {schema}.v_messages as
select number, run_id, namespace, message_id, kind, body, taken_by, to_timestamp(at / 1000.0) as at
  from {schema}.inbox;

create view {schema}.v_attempts as
select run_id, namespace, place, attempt, name, failure,
       to_timestamp(at / 1000.0) as at,
       to_timestamp(next_at / 1000.0) as next_at
  from {schema}.attempts;

create view {schema}.v_workers as
select worker_id, namespace, host, pid, queues, workflows,
       to_timestamp(started_at / 1000.0) as started_at,
       to_timestamp(lease_until / 1000.0) as lease_until
  from {schema}.workers;

create view {schema}.v_queues as
select namespace, queue, count(*) as open_runs, count(owner) as owned_runs, count(held) as held_runs,
       count(*) filter (where owner is null and wake_at <= (extract(epoch from clock_timestamp()) * 1000)::bigint) as ripe_runs,
       count(*) filter (where owner is null and held is null and (wake_at is null or wake_at > (extract(epoch from clock_timestamp()) * 1000)::bigint)) as waiting_runs
  from {schema}.runs
 where closed_at is null
 group by namespace, queue;
