"""Who calls: by a key of the database, or by the session of a browser that was begun with one."""
