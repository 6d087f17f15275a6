-- What every database is asked of those who listen, with the types of parameters that are not text.

-- listen: have something written until a time; what had lapsed begins anew.
insert into listeners (name, until, since, later, later_at)
values (:name, :until::bigint, '', '', 0)
    on conflict (name) do update
   set since = case when listeners.until <= :now::bigint then '' else listeners.since end,
       until = greatest(listeners.until, excluded.until);

-- move_log: say since when a log is whole, unless somebody else has said so meanwhile.
update listeners
   set since = :since,
       later = :later,
       later_at = :later_at::bigint
 where name = :name
   and since = :was;

-- listener: one of them.
select until, since, later, later_at from listeners where name = :name;
