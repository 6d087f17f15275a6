-- What every database is asked of idempotency keys, with the types of parameters that are not text.

-- kept_key: what is known of a command under a key.
select digest, holder, answer, taken_at, keep_until, reply
  from idempotency_keys
 where namespace = :namespace
   and command = :command
   and key = :key;

-- finish_key: the answer of a command that was under way, if it is still its holder who says so.
update idempotency_keys
   set answer = :answer,
       keep_until = :keep_until::bigint
 where namespace = :namespace
   and command = :command
   and key = :key
   and holder = :holder;

-- release_key: a command failed, and leaves no key.
delete from idempotency_keys
 where namespace = :namespace
   and command = :command
   and key = :key
   and holder = :holder;

-- forget_keys: delete some of those that are not kept any more.
delete from idempotency_keys
 where (namespace, command, key) in (
         select namespace, command, key
           from idempotency_keys
          where keep_until <= :now::bigint
          order by keep_until
          limit :limit::bigint
       )
   and keep_until <= :now::bigint;

-- delete_keys: those of a namespace that is deleted.
delete from idempotency_keys
 where namespace = :namespace;

-- oldest_key: until when the first that will be forgotten is kept.
select min(keep_until) from idempotency_keys;
