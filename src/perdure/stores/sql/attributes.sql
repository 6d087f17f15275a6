-- forget_attributes: what a run was started with.
delete from attributes
 where run_id = :to_run_id;

-- copy_attributes: what is known of a run by its attributes holds for the run that continues it.
insert into attributes (run_id, namespace, name, n, kind, text, number, whole)
select :to_run_id, namespace, name, n, kind, text, number, whole
  from attributes
 where run_id = :run_id;
