-- What SQLite is asked of attributes in its own way. `:rows` becomes as many rows of parameters as the batch has;
-- unused ones are null and skipped.

-- put_plain_attributes: what new runs say of themselves in texts, whole numbers and truths alone.
insert into attributes (run_id, namespace, name, n, kind, text, number, whole)
select column1, column2, each.key, 0,
       case each.type when 'text' then 'text' when 'integer' then 'number' else 'truth' end,
       case each.type when 'text' then each.atom when 'integer' then null else each.type end,
       case each.type when 'integer' then each.atom end,
       case each.type when 'integer' then each.atom end
  from (values :rows), json_each(column3) as each
 where column1 is not null
   and each.type <> 'null';

-- put_attributes: what other runs say of themselves that are started, or were before.
insert into attributes (run_id, namespace, name, n, kind, text, number, whole)
select column1, column2, column3, column4, column5, column6, column7, column8
  from (values :rows)
 where column1 is not null
    on conflict do nothing;

-- drop_attributes: what runs have said of themselves up to now.
delete from attributes
 where run_id in (select column1 from (values :rows));

-- renew_attributes: what they say now.
insert into attributes (run_id, namespace, name, n, kind, text, number, whole)
select column1, column2, column3, column4, column5, column6, column7, column8
  from (values :rows)
 where column1 is not null;
