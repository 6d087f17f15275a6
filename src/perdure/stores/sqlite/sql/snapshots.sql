-- What SQLite is asked of snapshots in its own way. `:rows` becomes as many rows of parameters as the batch has;
-- unused ones are null and skipped.

-- write_snapshots: what runs show of themselves from now on, as far as the worker owns them; the same is not written.
insert into snapshots (run_id, namespace, seq, at, body)
select column1, column3, column4, column5, column6
  from (values :rows)
 where exists (select 1 from runs where runs.run_id = column1 and runs.owner = column2)
    on conflict (run_id) do update
   set seq = excluded.seq,
       at = excluded.at,
       body = excluded.body
 where snapshots.body <> excluded.body;
