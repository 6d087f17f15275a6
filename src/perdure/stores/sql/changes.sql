-- What every database is asked of changes, with the types of parameters that are not text.

-- changed_runs: the runs that were changed by what a position has not seen.
select distinct run_id
  from changes
 where transaction_id >= :end::bigint
    or transaction_id in (select value from json_each(:open::bigint[]));

-- runs_of: these runs.
select *
  from runs
 where run_id in (select value from json_each(:run_ids::text[]))
 order by run_id;
