-- What Postgres is asked of namespaces in its own way: others write at the same time.

-- reach_namespace: the row of a namespace, for this transaction to delete; a worker that begins there is waited for.
select 1 from namespaces where namespace = :namespace for update;
