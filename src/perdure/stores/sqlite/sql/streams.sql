-- What SQLite is asked of streams in its own way. `:rows` becomes as many rows of parameters as the batch has;
-- unused ones are null and skipped.

-- append_values: values of streams whose heads count them already; a row says how many of its stream come after it.
insert into streams (run_id, namespace, name, n, attempt, at, body)
select column1, column2, column3, stream_heads.n - column4, column5, column6, column7
  from (values :rows)
  join stream_heads on stream_heads.run_id = column1 and stream_heads.name = column3 and stream_heads.source = ''
 where column1 is not null;
