-- What SQLite is asked of attributes in its own way. `:rows` becomes as many rows of parameters as the batch has;
-- unused ones are null and skipped.

-- put_attributes: what new runs say of themselves.
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
