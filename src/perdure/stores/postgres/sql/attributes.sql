-- What Postgres is asked of attributes in its own way: rows come as JSON.

-- put_attributes: what new runs say of themselves.
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
