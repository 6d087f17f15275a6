-- What Postgres is asked of bodies that are too large for their rows in its own way: rows come as JSON, others write at the same time, and a row
-- that another transaction holds is left for the next look.

-- put_payloads: bodies too large for their rows; a start that is written again finds its own there.
insert into payloads (namespace, run_id, seq, body)
select r ->> 0, r ->> 1, (r ->> 2)::bigint, r ->> 3
  from jsonb_array_elements(:rows::jsonb) as r
    on conflict do nothing;

-- copy_payloads: the bodies of events that a run has from another one.
insert into payloads (namespace, run_id, seq, body)
select namespace, r ->> 1, seq - (r ->> 4)::bigint, body
  from jsonb_array_elements(:rows::jsonb) as r
  join payloads on run_id = r ->> 0 and seq between (r ->> 2)::bigint and (r ->> 3)::bigint;
