-- What SQLite is asked of bodies that are too large for their rows in its own way. `:rows` becomes as many rows of parameters as the batch has;
-- unused ones are null and skipped. `at_once(…)` is ripe at once: the turn of this statement.
-- A time that has come by the clock of who writes it means at once: that clock may be ahead of all others.

-- put_payloads: bodies too large for their rows; a start that is written again finds its own there.
insert into payloads (namespace, run_id, seq, body)
select column1, column2, column3, column4
  from (values :rows)
 where column1 is not null
    on conflict do nothing;

-- copy_payloads: the bodies of events that a run has from another one.
insert into payloads (namespace, run_id, seq, body)
select payloads.namespace, kept.column2, payloads.seq - kept.column5, payloads.body
  from (values :rows) as kept
 cross join payloads on payloads.run_id = kept.column1 and payloads.seq between kept.column3 and kept.column4;
