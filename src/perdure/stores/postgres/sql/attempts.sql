-- What Postgres is asked of failed attempts in its own way: rows come as JSON, others write at the same time, and a row
-- that another transaction holds is left for the next look.

-- record_attempts: failed attempts that will be followed by another one.
insert into attempts (namespace, run_id, place, attempt, name, failure, at, next_at)
select r ->> 0, r ->> 1, r ->> 2, (r ->> 3)::bigint, r ->> 4, r ->> 5, (r ->> 6)::bigint, (r ->> 7)::bigint
  from jsonb_array_elements(:rows::jsonb) as r
    on conflict do nothing;
