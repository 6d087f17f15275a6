-- 0012: runs are found by their attributes, and by when they were made.
-- Safe before the new code runs: old code leaves the table alone; what it changes meanwhile is not found by filters.

-- attributes: each attribute of a run with `n` = 0, and the plain values of one that is a list with others. The kind is
-- text, number, truth (as text) or other; a whole number of 64 bits stands beside its floating point.
create table attributes (
    run_id    text not null,
    namespace text not null,
    name      text not null,
    n         integer not null,
    kind      text not null,
    text      text,
    number    real,
    whole     integer,
    primary key (run_id, name, n)
) without rowid;
create index attributes_by_text on attributes (namespace, name, text, run_id)
    where text is not null and length(text) <= 200;
create index attributes_by_number on attributes (namespace, name, number, run_id) where number is not null;

insert into attributes (run_id, namespace, name, n, kind, text, number, whole)
select run_id, namespace, name, n,
       case when type = 'text' and instr(value, char(0)) = 0 then 'text'
            when type in ('integer', 'real') then 'number'
            when type in ('true', 'false') then 'truth'
            else 'other' end,
       case when type = 'text' and instr(value, char(0)) = 0 then value when type in ('true', 'false') then type end,
       case when type in ('integer', 'real') then max(-1.7976931348623157e308, min(value, 1.7976931348623157e308)) end,
       case when typeof(value) = 'integer' and type = 'integer' then value
            when type = 'real' and abs(value) < 9.2e18 and value = cast(value as integer) then cast(value as integer) end
  from (
         select run_id, namespace, each.key as name, 0 as n, each.type, each.atom as value
           from runs, json_each(attributes) as each
          where attributes is not null and json_valid(attributes) and each.type <> 'null'
         union all
         select run_id, namespace, each.key, row_number() over (partition by run_id, each.key order by item.key),
                item.type, item.atom
           from runs, json_each(attributes) as each, json_each(each.value) as item
          where attributes is not null and json_valid(attributes) and each.type = 'array'
            and item.type in ('text', 'integer', 'real', 'true', 'false')
       );

-- The id of a run begins with the time it was made at. Those few whose rows tell another one are found by that.
create index runs_misdated on runs (namespace, created_at)
    where run_id < printf('%011x', created_at - 60000) or run_id > printf('%011x', created_at + 60000);
