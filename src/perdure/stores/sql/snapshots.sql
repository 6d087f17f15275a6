-- What every database is asked of snapshots: what runs show of themselves.

-- snapshot: what a run shows.
select seq, at, body from snapshots where run_id = :run_id;
