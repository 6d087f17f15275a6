-- What SQLite is asked of namespaces in its own way.

-- reach_namespace: the row of a namespace, for this transaction to delete.
select 1 from namespaces where namespace = :namespace;
