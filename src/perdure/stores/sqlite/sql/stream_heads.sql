-- What SQLite is asked of the heads of streams in its own way. `:rows` becomes as many rows of parameters as the batch
-- has; unused ones are null and skipped.

-- open_runs: those of these runs that have not ended, and do not before this is written.
select run_id from runs where run_id in (select column1 from (values :rows)) and closed_at is null;

-- move_heads: count values that are about to be appended, and note in which attempts activities have published.
insert into stream_heads (run_id, namespace, name, source, n, own, attempt)
select column1, column2, column3, column4, column5, column6, column7
  from (values :rows)
 where column1 is not null
    on conflict (run_id, name, source) do update
   set n = stream_heads.n + excluded.n,
       own = stream_heads.own + excluded.own,
       attempt = max(stream_heads.attempt, excluded.attempt);

-- copy_heads: the streams of a run go on in the one that continues it, with the next number.
insert into stream_heads (run_id, namespace, name, source, n, own, attempt)
select :to_run_id, namespace, name, source, n, 0, 0
  from stream_heads
 where run_id = :run_id
   and source = ''
    on conflict do nothing;
