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
    listeners text[];
    changes jsonb;
    told_events jsonb;
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
{parts}    -- Last, when something was written: who begins to listen then sees that this transaction is open.
    if given ? 'now' then
        select array_agg(name) into listeners from {schema}.listeners where until > (given ->> 'now')::bigint;
        if 'changes' = any(listeners) then
            select jsonb_agg(jsonb_build_array(r -> 0))
              into changes
              from unnest(array[{shown}]) as part, jsonb_array_elements(given -> part) as r;
            {log_changes};
        end if;
        if 'outbox' = any(listeners) then
            select jsonb_agg(jsonb_build_array(run_id, bit, type, number, at, step, status) order by part, place)
              into told_events
              from ({told_events}) as told
             where type is not null;
            if told_events is not null then
                {queue_events};
                get diagnostics changed = row_count;
                if changed > 0 then
                    {mark_behind};
                end if;
            end if;
        end if;
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
