-- What Postgres is asked of changes in its own way: rows come as JSON.

-- log_changes: these runs have changed.
insert into changes (transaction_id, run_id)
select distinct pg_current_xact_id()::text::bigint, r ->> 0
  from jsonb_array_elements(:rows::jsonb) as r
    on conflict do nothing;

-- changes_position: what is seen by now. A transaction that is open is named, and is looked for until it is seen.
select pg_current_snapshot()::text as position;

-- forget_changes: delete some of those that nobody can ask for any more.
delete from changes
 where (transaction_id, run_id) in (
         select transaction_id, run_id
           from changes
          where transaction_id < :before::bigint
            and transaction_id <> all(:but::bigint[])
          limit :limit::bigint
       );

-- open_transactions: who they are.
select 'process ' || pid || coalesce(' of ' || nullif(application_name, ''), '') || ', ' || coalesce(state, 'unknown') || ' since ' || coalesce(to_char(xact_start at time zone 'UTC', 'HH24:MI:SS'), 'unknown')
  from pg_stat_activity
 where backend_xid::text::bigint in (select each % 4294967296 from unnest(:open::bigint[]) as each)
 order by pid;
