-- 0010: what workflows and activities have to say beyond events.
-- Safe before the new code runs: old code knows nothing of the new tables and columns and leaves them alone.

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

-- Requests: the answer of the workflow, as JSON. Those that were taken and have none are looked for when a run is loaded.
alter table inbox add column answer text;
create index inbox_unanswered on inbox (run_id, message_id)
    where kind = 'RequestSent' and taken_by is not null and answer is null;

-- Deferreds: what their tokens are made from; it is shown nowhere.
alter table perdure_schema add column secret blob;
update perdure_schema set secret = randomblob(32);

-- Undo: what a run would have to undo, and what it has undone, as a list in JSON; empty when there is nothing.
alter table runs add column undo text;

-- snapshots: what a run shows of itself, as JSON; `seq` is the event it is of.
create table snapshots (
    run_id    text not null primary key,
    namespace text not null,
    seq       integer not null,
    at        integer not null,
    body      text not null
) without rowid;

-- streams: what runs publish, numbered by `n` in each stream without a gap; `attempt` is that of the activity.
create table streams (
    run_id    text not null,
    namespace text not null,
    name      text not null,
    n         integer not null,
    attempt   integer not null,
    at        integer not null,
    body      text not null,
    primary key (run_id, name, n)
) without rowid;

-- stream_heads: of each stream the last number, and how many values are of the workflow itself. A `source` is the
-- place of an activity in the run that published: of that, the attempt that has published last.
create table stream_heads (
    run_id    text not null,
    namespace text not null,
    name      text not null,
    source    text not null,
    n         integer not null,
    own       integer not null,
    attempt   integer not null,
    primary key (run_id, name, source)
) without rowid;
