-- 0008: runs are found by their attributes, and by when they were made.
-- Safe before the new code runs: old code leaves the table alone; what it changes meanwhile is not found by filters.

-- attributes: each attribute of a run with `n` = 0, and the plain values of one that is a list with others. The kind is
-- text, number, truth (as text) or other; a whole number of 64 bits stands beside its floating point.
create table {schema}.attributes (
    run_id    text collate "C" not null,
    namespace text collate "C" not null,
    name      text collate "C" not null,
    n         bigint not null,
    kind      text collate "C" not null,
    text      text collate "C",
    number    double precision,
    whole     bigint,
    constraint attributes_key primary key (run_id, name, n)
) with (autovacuum_vacuum_scale_factor = 0.05);
create index attributes_by_text on {schema}.attributes (namespace, name, text, run_id)
    where text is not null and length(text) <= 200;
create index attributes_by_number on {schema}.attributes (namespace, name, number, run_id) where number is not null;

insert into {schema}.attributes (run_id, namespace, name, n, kind, text, number, whole)
select run_id, namespace, name, n,
       case jsonb_typeof(value) when 'string' then 'text' when 'number' then 'number' when 'boolean' then 'truth'
            else 'other' end,
       case when jsonb_typeof(value) in ('string', 'boolean') then value #>> '{}' end,
       case when jsonb_typeof(value) = 'number' then
            greatest(-1.7976931348623157e308, least((value #>> '{}')::numeric, 1.7976931348623157e308))::float8 end,
       case when jsonb_typeof(value) = 'number' and (value #>> '{}')::numeric = trunc((value #>> '{}')::numeric)
             and (value #>> '{}')::numeric between -9223372036854775808 and 9223372036854775807
            then (value #>> '{}')::numeric::bigint end
  from (
         with given as materialized (
             select run_id, namespace, attributes::jsonb as attributes
               from {schema}.runs
              where attributes is not null and attributes not like '%\u0000%'
         )
         select run_id, namespace, key as name, 0 as n, value
           from given, jsonb_each(attributes)
          where jsonb_typeof(value) <> 'null'
         union all
         select run_id, namespace, key, row_number() over (partition by run_id, key order by place), item
           from given, jsonb_each(attributes), jsonb_array_elements(case jsonb_typeof(value) when 'array' then value else '[]' end)
                with ordinality as items (item, place)
          where jsonb_typeof(item) in ('string', 'number', 'boolean')
       ) as given;

-- The id of a run begins with the time it was made at. Those few whose rows tell another one are found by that.
create index runs_misdated on {schema}.runs (namespace, created_at)
    where run_id < lpad(to_hex(created_at - 60000), 11, '0') or run_id > lpad(to_hex(created_at + 60000), 11, '0');
