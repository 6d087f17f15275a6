"""Retry and fork as callers ask for them: what they give is checked and put into words for the engine."""

from collections.abc import Mapping

import msgspec

from perdure import codec
from perdure.app.run_results import own_type
from perdure.authoring.options import checked_reason
from perdure.authoring.workflow import workflows
from perdure.codec import ValueType
from perdure.engine.ports import Engine, ForkRequest
from perdure.errors import BadArguments, BadOption
from perdure.ids import checked_id


async def fork_request(
    engine: Engine,
    namespace: str,
    run_id: str,
    at: object,
    id: str | None,
    input: Mapping[str, object] | None,
    results: Mapping[str, object] | None,
    reason: str | None,
) -> ForkRequest:
    """What a caller gave for a fork; BadOption, BadArguments."""
    if isinstance(at, bool) or not isinstance(at, int | str) or at == "":
        raise BadOption(f"at is {at!r}; give the number of the last event to keep, or the place to go on before")
    return ForkRequest(
        at,
        None if id is None else checked_id("workflow id", id),
        None if input is None else await _merged_input(engine, namespace, run_id, _named("input", input)),
        {
            place: _written(f"the result of {place!r}", value)
            for place, value in _named("results", results or {}).items()
        },
        checked_reason(reason),
    )


def _named(what: str, given: object) -> Mapping[str, object]:
    if not isinstance(given, Mapping) or not all(isinstance(name, str) for name in given):
        raise BadOption(f"{what} is {given!r}; give a dict with a value for each name")
    return given


def _written(what: str, value: object, kind: ValueType | None = None) -> msgspec.Raw:
    data, _ = (kind or own_type(value)).record(value, what)
    return msgspec.Raw(data)


async def _merged_input(engine: Engine, namespace: str, run_id: str, given: Mapping[str, object]) -> str:
    """The arguments of a run with those that are given in place of its own."""
    row = await engine.reader.read(namespace, run_id)
    had = msgspec.json.decode(row.input, type=dict[str, msgspec.Raw])
    known = workflows.get(row.workflow)
    if known is None:
        if unknown := sorted(given.keys() - had.keys()):
            raise BadArguments(row.workflow, f"the run has no argument {unknown[0]!r}, only {', '.join(had) or 'none'}")
        types: Mapping[str, ValueType] = {}
    else:
        types = known.signature.parameters
    replaced = {name: _written(f"the argument {name!r}", value, types.get(name)) for name, value in given.items()}
    data = codec.dump(had | replaced, f"the input of {row.workflow}")
    return (data if known is None else known.signature.from_json(data)[0]).decode()
