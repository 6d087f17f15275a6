-- What SQLite is asked of changes in its own way. `:rows` becomes as many rows of parameters as the batch has; unused
-- ones are null and skipped.

-- log_changes: these runs have changed.
insert into changes (run_id)
select column1 from (values :rows) where column1 is not null;

-- changes_position: what is seen by now, as Postgres writes it; one writes at a time, and nothing is open.
select seen || ':' || seen || ':' as position
  from (select coalesce((select seq from sqlite_sequence where name = 'changes'), 0) + 1 as seen);

-- forget_changes: delete some of those that nobody can ask for any more.
delete from changes
 where transaction_id in (
         select transaction_id
           from changes
          where transaction_id < :before
            and transaction_id not in (select value from json_each(:but))
          limit :limit
       );

-- open_transactions: one writes at a time, so none is ever open.
select '' where :open is null;
