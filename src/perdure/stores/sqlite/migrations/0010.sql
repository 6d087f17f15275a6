-- 0010: what workflows and activities have to say beyond events.
-- Safe before the new code runs: old code knows nothing of the new tables and leaves them alone.

-- progress: of a call under way, that its only attempt has begun, and the newest details of its heartbeats.
create table progress (
    namespace text not null,
    run_id    text not null,
    place     text not null,
    begun_at  integer,
    details   text,
    beat_at   integer,
    primary key (run_id, place)
);
