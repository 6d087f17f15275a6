-- What every database is asked of failed attempts, with the types of parameters that are not text.
-- `at_once(…)` is ripe at once: the turn of this statement, or on Postgres the time given.

-- tried: the activities of a run that have failed, and how often.
select place, name, max(attempt)
  from attempts
 where run_id = :run_id
 group by place, name
 order by place;

-- attempts: a run's failed attempts.
select place, attempt, name, failure, at, next_at
  from attempts
 where run_id = :run_id
 order by place, attempt;

-- attempts_of: the same for several runs.
select run_id, place, attempt, name, failure, at, next_at
  from attempts
 where run_id in (select value from json_each(:run_ids::text[]))
 order by run_id, place, attempt;

-- last_attempt: the last failed attempt of one call.
select place, attempt, name, failure, at, next_at
  from attempts
 where run_id = :run_id
   and place = :place
 order by attempt desc
 limit 1;
