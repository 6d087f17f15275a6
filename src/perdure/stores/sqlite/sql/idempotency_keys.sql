-- What SQLite is asked of idempotency keys in its own way. `:rows` becomes as many rows of parameters as the batch has;
-- unused ones are null and skipped.

-- take_keys: take keys that nobody has, that are not kept any more, or whose holders take too long.
insert into idempotency_keys (holder, namespace, command, key, digest, answer, taken_at, stale_at, keep_until)
select column1, column2, column3, column4, column5, column6, column7, column8, column9
  from (values :rows)
 where column1 is not null
    on conflict (namespace, command, key) do update
   set digest = excluded.digest,
       holder = excluded.holder,
       answer = excluded.answer,
       reply = null,
       taken_at = excluded.taken_at,
       stale_at = excluded.stale_at,
       keep_until = excluded.keep_until
 where idempotency_keys.keep_until <= excluded.taken_at
    or (idempotency_keys.answer is null
        and idempotency_keys.digest = excluded.digest
        and idempotency_keys.stale_at <= excluded.taken_at)
returning holder;

-- note_replies: what a server has answered, where the key is still held by the same caller.
update idempotency_keys
   set reply = said.column5
  from (values :rows) as said
 where namespace = said.column1
   and command = said.column2
   and key = said.column3
   and holder = said.column4;
