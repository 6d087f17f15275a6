-- What every database is asked of access keys, with the types of parameters that are not text.

-- insert_access_key: a key begins to be good.
insert into access_keys (key_id, hash, label, scopes, namespaces, queues, entity_id, created_at, expires_at)
values (:key_id, :hash, :label, :scopes, :namespaces, :queues, :entity_id, :created_at::bigint, :expires_at::bigint);

-- revoke_access_key: a key is good no more.
update access_keys
   set revoked_at = :at::bigint
 where key_id = :key_id
   and revoked_at is null;

-- note_key_use: when a key was used last.
update access_keys
   set last_used_at = :at::bigint
 where key_id = :key_id
   and (last_used_at is null or last_used_at < :at::bigint);

-- access_key: one key.
select * from access_keys where key_id = :key_id;

-- access_keys: all keys, the oldest first.
select * from access_keys order by created_at, key_id;
