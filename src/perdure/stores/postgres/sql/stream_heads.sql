-- What Postgres is asked of the heads of streams in its own way: rows come as JSON.

-- open_runs: those of these runs that have not ended, and do not before this is written.
select run_id
  from runs
 where run_id in (select r ->> 0 from jsonb_array_elements(:rows::jsonb) as r)
   and closed_at is null
 order by run_id
   for share;

-- move_heads: count values that are about to be appended, and note in which attempts activities have published.
insert into stream_heads (run_id, namespace, name, source, n, own, attempt)
select r ->> 0, r ->> 1, r ->> 2, r ->> 3, (r ->> 4)::bigint, (r ->> 5)::bigint, (r ->> 6)::bigint
  from jsonb_array_elements(:rows::jsonb) as r
    on conflict (run_id, name, source) do update
   set n = stream_heads.n + excluded.n,
       own = stream_heads.own + excluded.own,
       attempt = greatest(stream_heads.attempt, excluded.attempt);

-- copy_heads: the streams of a run go on in the one that continues it, with the next number.
insert into stream_heads (run_id, namespace, name, source, n, own, attempt)
select :to_run_id, namespace, name, source, n, 0, 0
  from stream_heads
 where run_id = :run_id
   and source = ''
    on conflict do nothing;
