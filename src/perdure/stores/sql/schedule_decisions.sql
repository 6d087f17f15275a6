-- What every database is asked of the decisions of schedules, with the types of parameters that are not text.

-- delete_decisions: those of a schedule that is deleted.
delete from schedule_decisions where schedule_id = :schedule_id;

-- decisions_of: those of a schedule, the newest first.
select number, time, kind, times, run_id
  from schedule_decisions
 where schedule_id = :schedule_id
 order by number desc;
