-- What every database is asked of the heads of streams, with the types of parameters that are not text.

-- heads_of: what several runs have published: of each stream how much, and of each activity in which attempt.
select run_id, name, source, n, own, attempt
  from stream_heads
 where run_id in (select value from json_each(:run_ids::text[]))
 order by run_id, name, source;
