-- What SQLite is asked of failed attempts in its own way. `:rows` becomes as many rows of parameters as the batch has;
-- unused ones are null and skipped. `at_once(…)` is ripe at once: the turn of this statement.
-- A time that has come by the clock of who writes it means at once: that clock may be ahead of all others.

-- record_attempts: failed attempts that will be followed by another one.
insert into attempts (namespace, run_id, place, attempt, name, failure, at, next_at)
select column1, column2, column3, column4, column5, column6, column7, column8
  from (values :rows)
 where column1 is not null
    on conflict do nothing;
