-- What every database is asked of sinks, with the types of parameters that are not text.

-- insert_sink: a new one; nothing when its name is taken.
insert into sinks (sink_id, namespace, name, revision, types, workflows, max_backlog, behind_at, delivered, body)
values (:sink_id, :namespace, :name, 1, :types::bigint, :workflows, :max_backlog::bigint, null, 0, :body)
    on conflict do nothing;

-- move_sink: one that is as it was read.
update sinks
   set revision = revision + 1,
       types = :types::bigint,
       workflows = :workflows,
       max_backlog = :max_backlog::bigint,
       body = :body
 where sink_id = :sink_id
   and revision = :revision::bigint;

-- delete_sink: forget one.
delete from sinks where sink_id = :sink_id;

-- reach_wishes: whoever makes or forgets sinks does so one after the other.
update listeners set later_at = later_at where name in ('outbox', 'outbox.steps');

-- forget_wishes: what no sink wants any more is not written any more.
delete from listeners
 where (name = 'outbox' and not exists (select 1 from sinks))
    or (name = 'outbox.steps' and not exists (select 1 from sinks where types & :steps::bigint <> 0));

-- sink: one of them.
select * from sinks where namespace = :namespace and name = :name;

-- sink_of_id: one of them.
select * from sinks where sink_id = :sink_id;

-- sinks_of: those of a namespace.
select * from sinks where namespace = :namespace order by name;

-- mark_behind: a sink that too much waits for is told nothing more until it has caught up.
-- Counted only by who has written the last of each twentieth of what may wait, or every transaction would pay for a
-- sink that takes nothing; so that never more waits, as few as a twentieth less are too much.
update sinks
   set behind_at = :now::bigint
 where behind_at is null
   and case
         when (select max(n) from outbox) / greatest(max_backlog / 20, 1) <> ((select max(n) from outbox) - :count::bigint) / greatest(max_backlog / 20, 1)
           then (select count(*) from outbox where outbox.sink_id = sinks.sink_id) > max_backlog - greatest(max_backlog / 20, 1)
         else false
       end;

-- count_delivered: how many a sink has taken.
update sinks set delivered = delivered + :count::bigint where sink_id = :sink_id;

-- end_gap: a sink is told events again.
update sinks set behind_at = null where sink_id = :sink_id and behind_at is not null;
