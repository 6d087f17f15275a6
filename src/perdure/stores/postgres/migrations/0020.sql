-- 0020: a field of a JSON text, null where the text is spoilt, so that one such row spoils no filter over all of them.
-- Safe before the new code runs: nothing else uses it. Postgres can tell whether a text is JSON only from 16 on.
create function {schema}.perdure_json_field(body text, name text)
returns text
language plpgsql
immutable
parallel safe
as $$
begin
    return replace(body, '\u0000', '\ufffd')::json ->> name;
exception
    when others then
        return null;
end
$$;
