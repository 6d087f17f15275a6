-- What Postgres is asked of idempotency keys in its own way: rows come as JSON.

-- take_keys: take keys that nobody has, that are not kept any more, or whose holders take too long.
insert into idempotency_keys (holder, namespace, command, key, digest, answer, taken_at, stale_at, keep_until)
select r ->> 0, r ->> 1, r ->> 2, r ->> 3, r ->> 4, r ->> 5, (r ->> 6)::bigint, (r ->> 7)::bigint, (r ->> 8)::bigint
  from jsonb_array_elements(:rows::jsonb) as r
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
   set reply = r ->> 4
  from jsonb_array_elements(:rows::jsonb) as r
 where namespace = r ->> 0
   and command = r ->> 1
   and key = r ->> 2
   and holder = r ->> 3;
