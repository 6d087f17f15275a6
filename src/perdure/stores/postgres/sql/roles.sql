-- Two roles: perdure_owner owns the tables and changes them, perdure_worker works with them and can do nothing else.
-- Run it as a superuser, once, or as often as you like: before `perdure migrate`, or
-- after. Then give both their passwords (\password in psql), and name perdure_owner in the URL of `perdure migrate`
-- alone, and perdure_worker in all others.

do $$
begin
    if not exists (select 1 from pg_roles where rolname = 'perdure_owner') then
        create role perdure_owner login;
    end if;
    if not exists (select 1 from pg_roles where rolname = 'perdure_worker') then
        create role perdure_worker login;
    end if;
end
$$;

-- What is there already, and whoever made it, belongs to the owner from now on.
create schema if not exists {schema};
alter schema {schema} owner to perdure_owner;
do $$
declare
    each record;
begin
    for each in select oid::regclass as name from pg_class where relnamespace = {schema_name}::regnamespace and relkind in ('r', 'v')
    loop
        execute format('alter table %s owner to perdure_owner', each.name);
    end loop;
    for each in select oid::regprocedure as name from pg_proc where pronamespace = {schema_name}::regnamespace
    loop
        execute format('alter function %s owner to perdure_owner', each.name);
    end loop;
end
$$;

revoke all on schema {schema} from public;
revoke all on all functions in schema {schema} from public;
grant usage on schema {schema} to perdure_worker;
grant select, insert, update, delete on all tables in schema {schema} to perdure_worker;
grant execute on all functions in schema {schema} to perdure_worker;

-- The same for tables and functions that migrations add.
alter default privileges for role perdure_owner revoke execute on functions from public;
alter default privileges for role perdure_owner in schema {schema}
    grant select, insert, update, delete on tables to perdure_worker;
alter default privileges for role perdure_owner in schema {schema}
    grant execute on functions to perdure_worker;

-- If you like: who stalls a run by a transaction of their own is told in more detail to those who may read statistics.
-- grant pg_read_all_stats to perdure_worker;
