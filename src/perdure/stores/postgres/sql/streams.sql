-- What Postgres is asked of streams in its own way: rows come as JSON.

-- append_values: values of streams whose heads count them already; a row says how many of its stream come after it.
insert into streams (run_id, namespace, name, n, attempt, at, body)
select r ->> 0, r ->> 1, r ->> 2, stream_heads.n - (r ->> 3)::bigint, (r ->> 4)::bigint, (r ->> 5)::bigint, r ->> 6
  from jsonb_array_elements(:rows::jsonb) as r
  join stream_heads on stream_heads.run_id = r ->> 0 and stream_heads.name = r ->> 2 and stream_heads.source = '';
