-- 0006: what workflows and activities have to say beyond events.
-- Safe before the new code runs: old code knows nothing of the new tables and leaves them alone.

-- progress: of a call under way, that its only attempt has begun, and the newest details of its heartbeats.
create table {schema}.progress (
    namespace text collate "C" not null,
    run_id    text collate "C" not null,
    place     text collate "C" not null,
    begun_at  bigint,
    details   text collate "C",
    beat_at   bigint,
    constraint progress_key primary key (run_id, place)
) with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05);
