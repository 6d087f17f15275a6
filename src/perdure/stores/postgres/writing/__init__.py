"""How a batch is written to Postgres: in one call, in steps, or in parts when something is in the way."""
