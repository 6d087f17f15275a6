-- What every database is asked of duties, with the types of parameters that are not text.

-- take_duty: a worker takes a duty that nobody has, or whose holder has no row any more; or, if so asked, one whose
-- holder has not done well for too long.
insert into duties (namespace, name, holder, since, last_ok_at, last_error)
values (:namespace, :name, :worker_id, :now::bigint, :now::bigint, null)
    on conflict (namespace, name) do update
   set holder = excluded.holder,
       since = excluded.since,
       last_ok_at = excluded.last_ok_at,
       last_error = null
 where duties.holder is null
    or duties.holder = excluded.holder
    or duties.last_ok_at <= :stale_before::bigint
    or not exists (select 1 from workers where workers.worker_id = duties.holder);

-- note_duty: how it went; whoever has lost the duty learns it so.
update duties
   set last_ok_at = coalesce(:ok_at::bigint, last_ok_at),
       last_error = :error
 where namespace = :namespace
   and name = :name
   and holder = :worker_id;

-- duties: those of a namespace, with whether their holders have rows.
select name, holder, since, last_ok_at, last_error,
       case when exists (select 1 from workers where workers.worker_id = duties.holder) then 1 else 0 end as is_held
  from duties
 where namespace = :namespace
 order by name;

-- reach_duty: a worker that has a duty, for this transaction to rely on.
update duties
   set since = since
 where namespace = :namespace
   and name = :name
   and holder = :worker_id;
