-- 0006: what workflows and activities have to say beyond events.
-- Safe before the new code runs: old code knows nothing of the new tables and columns and leaves them alone.

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

-- Requests: the answer of the workflow, as JSON. Those that were taken and have none are looked for when a run is loaded.
alter table {schema}.inbox add column answer text collate "C";
create index inbox_unanswered on {schema}.inbox (run_id, message_id)
    where kind = 'RequestSent' and taken_by is not null and answer is null;

-- Deferreds: what their tokens are made from; it is shown nowhere. Two random UUIDs have 244 random bits.
alter table {schema}.perdure_schema add column secret bytea;
update {schema}.perdure_schema
   set secret = decode(replace(gen_random_uuid()::text || gen_random_uuid()::text, '-', ''), 'hex');

-- Undo: what a run would have to undo, and what it has undone, as a list in JSON; empty when there is nothing.
alter table {schema}.runs add column undo text collate "C";

-- snapshots: what a run shows of itself, as JSON; `seq` is the event it is of.
create table {schema}.snapshots (
    run_id    text collate "C" not null,
    namespace text collate "C" not null,
    seq       bigint not null,
    at        bigint not null,
    body      text collate "C" not null,
    constraint snapshots_key primary key (run_id)
) with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05);

-- streams: what runs publish, numbered by `n` in each stream without a gap; `attempt` is that of the activity.
create table {schema}.streams (
    run_id    text collate "C" not null,
    namespace text collate "C" not null,
    name      text collate "C" not null,
    n         bigint not null,
    attempt   bigint not null,
    at        bigint not null,
    body      text collate "C" not null,
    constraint streams_key primary key (run_id, name, n)
) with (autovacuum_vacuum_insert_scale_factor = 0.1);

-- stream_heads: of each stream the last number, and how many values are of the workflow itself. A `source` is the
-- place of an activity in the run that published: of that, the attempt that has published last.
create table {schema}.stream_heads (
    run_id    text collate "C" not null,
    namespace text collate "C" not null,
    name      text collate "C" not null,
    source    text collate "C" not null,
    n         bigint not null,
    own       bigint not null,
    attempt   bigint not null,
    constraint stream_heads_key primary key (run_id, name, source)
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05);
