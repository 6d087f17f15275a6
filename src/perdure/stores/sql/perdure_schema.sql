-- What every database is asked of itself.

-- secret: what tokens are made from.
select secret from perdure_schema;
