-- write_batch: a batch that holds only what many runs do all the time, in one round trip.
-- The statements are those of postgres.sql, put in where their names stand. Whatever is refused undoes all of it, and
-- the batch is written once more in steps, each of which can be looked at.
create or replace function {schema}.{function}(of_worker text, of_epoch bigint, given jsonb)
returns jsonb
language plpgsql
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set lock_timeout = '100ms'
as $$
#variable_conflict use_column
declare
    changed bigint;
    posted jsonb;
    told jsonb;
    counts jsonb;
begin
    if current_setting('transaction_isolation') <> 'read committed' then
        raise exception 'the isolation level is %', current_setting('transaction_isolation') using errcode = 'PD001';
    end if;
    if of_worker is not null then
        perform 1 from {schema}.workers where worker_id = of_worker and epoch = of_epoch for key share;
        if not found then
            return '{{"fenced": true}}';
        end if;
    end if;
    if given ? 'insert_runs' then
        {insert_runs};
        get diagnostics changed = row_count;
        perform {schema}.{function}_check(changed, given -> 'insert_runs');
    end if;
    if given ? 'insert_rich_runs' then
        {insert_rich_runs};
        get diagnostics changed = row_count;
        perform {schema}.{function}_check(changed, given -> 'insert_rich_runs');
    end if;
    if given ? 'put_payloads' then
        {put_payloads};
    end if;
    if given ? 'post_messages' then
        with of_messages as ({post_messages})
        select coalesce(jsonb_agg(jsonb_build_array(number, run_id, message_id, kind, at)), '[]'), count(*)
          into posted, changed
          from of_messages;
        perform {schema}.{function}_check(changed, given -> 'post_messages');
        select jsonb_agg(jsonb_build_array(run_id, how_many, are_signals, first_at))
          into told
          from (
                 select m ->> 1 as run_id,
                        count(*) as how_many,
                        bool_and(m ->> 3 = 'SignalSent') as are_signals,
                        min((m ->> 4)::bigint) as first_at
                   from jsonb_array_elements(posted) as m
                  group by m ->> 1
                  order by m ->> 1
               ) as by_run;
        with of_runs as ({count_posted})
        select jsonb_agg(jsonb_build_array(run_id, messages)) into counts from of_runs;
    end if;
    if given ? 'append_events' then
        {append_events};
    end if;
    if given ? 'take_messages' then
        {take_messages};
    end if;
    if given ? 'record_attempts' then
        {record_attempts};
    end if;
    if given ? 'park_runs' then
        with of_runs as ({park_runs})
        select count(*) into changed from of_runs;
        perform {schema}.{function}_check(changed, given -> 'park_runs');
    end if;
    if given ? 'hold_runs' then
        with of_runs as ({hold_runs})
        select count(*) into changed from of_runs;
        perform {schema}.{function}_check(changed, given -> 'hold_runs');
    end if;
    if given ? 'note_waiting' then
        with of_runs as ({note_waiting})
        select count(*) into changed from of_runs;
        perform {schema}.{function}_check(changed, given -> 'note_waiting');
    end if;
    if given ? 'annotate_runs' then
        with of_runs as ({annotate_runs})
        select count(*) into changed from of_runs;
        perform {schema}.{function}_check(changed, given -> 'annotate_runs');
    end if;
    if given ? 'note_losses' then
        with of_runs as ({note_losses})
        select count(*) into changed from of_runs;
        perform {schema}.{function}_check(changed, given -> 'note_losses');
    end if;
    if given ? 'end_runs' then
        {end_runs};
        get diagnostics changed = row_count;
        perform {schema}.{function}_check(changed, given -> 'end_runs');
    end if;
    return jsonb_build_object('posted', posted, 'counts', counts);
end
$$;

-- write_batch_check: all of the given rows were changed, or everything is undone.
create or replace function {schema}.{function}_check(changed bigint, given jsonb)
returns void
language plpgsql
as $$
begin
    if changed < jsonb_array_length(given) then
        raise exception 'refused' using errcode = 'PD409';
    end if;
end
$$;
