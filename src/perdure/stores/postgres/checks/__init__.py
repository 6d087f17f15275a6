"""What can be asked of a Postgres database without changing it: health, audit, privileges, schema."""
