-- What Postgres is asked of those who listen in its own way.

-- listeners: what is written only while somebody wants it, and until when.
-- A transaction of a caller's whose snapshot is older cannot see who listens by now: it logs as if somebody did.
select name, until
  from listeners
 union all
select 'changes', 9223372036854775807
 where current_setting('transaction_isolation') <> 'read committed';
