"""Who shares a database: namespaces, and the keys of callers."""
