-- What Postgres is asked of attributes in its own way: rows come as JSON.

-- put_plain_attributes: what new runs say of themselves in texts, whole numbers and truths alone. No row is in their
-- way: to let `on conflict` look for one first would make them half as dear again.
insert into attributes (run_id, namespace, name, n, kind, text, number, whole)
select r ->> 0, r ->> 1, each.key, 0,
       case jsonb_typeof(each.value) when 'string' then 'text' when 'number' then 'number' else 'truth' end,
       case when jsonb_typeof(each.value) <> 'number' then each.value #>> '{}' end,
       case when jsonb_typeof(each.value) = 'number' then each.value::float8 end,
       case when jsonb_typeof(each.value) = 'number' then each.value::bigint end
  from jsonb_array_elements(:rows::jsonb) as r, jsonb_each((r ->> 2)::jsonb) as each
 where jsonb_typeof(each.value) <> 'null';

-- put_attributes: what other runs say of themselves that are started, or were before.
insert into attributes (run_id, namespace, name, n, kind, text, number, whole)
select r ->> 0, r ->> 1, r ->> 2, (r ->> 3)::bigint, r ->> 4, r ->> 5, (r ->> 6)::float8, (r ->> 7)::bigint
  from jsonb_array_elements(:rows::jsonb) as r
    on conflict do nothing;

-- drop_attributes: what runs have said of themselves up to now.
delete from attributes
 where run_id in (select r ->> 0 from jsonb_array_elements(:rows::jsonb) as r);

-- renew_attributes: what they say now.
insert into attributes (run_id, namespace, name, n, kind, text, number, whole)
select r ->> 0, r ->> 1, r ->> 2, (r ->> 3)::bigint, r ->> 4, r ->> 5, (r ->> 6)::float8, (r ->> 7)::bigint
  from jsonb_array_elements(:rows::jsonb) as r;
