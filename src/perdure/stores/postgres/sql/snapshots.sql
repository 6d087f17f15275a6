-- What Postgres is asked of snapshots in its own way: rows come as JSON.

-- write_snapshots: what runs show of themselves from now on, as far as the worker owns them; the same is not written.
insert into snapshots (run_id, namespace, seq, at, body)
select r ->> 0, r ->> 2, (r ->> 3)::bigint, (r ->> 4)::bigint, r ->> 5
  from jsonb_array_elements(:rows::jsonb) as r
 where exists (select 1 from runs where runs.run_id = r ->> 0 and runs.owner = r ->> 1)
    on conflict (run_id) do update
   set seq = excluded.seq,
       at = excluded.at,
       body = excluded.body
 where snapshots.body <> excluded.body;
