-- What SQLite is asked of schedules in its own way. `:rows` becomes as many rows of parameters as the batch has;
-- unused ones are null and skipped.

-- move_schedules: schedules as they are now, if they are as they were read.
update schedules
   set revision = revision + 1,
       next_at = moved.column3,
       waits = moved.column4,
       body = moved.column5
  from (values :rows) as moved
 where schedule_id = moved.column1
   and revision = moved.column2
returning schedule_id;
