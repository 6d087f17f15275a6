"""Retry and fork as callers ask for them: what they give is checked and put into words for the engine."""

from collections.abc import Mapping

import msgspec

from perdure.app.run_results import own_type
from perdure.authoring.activity import check_result
from perdure.authoring.options import checked_reason
from perdure.authoring.workflow import workflows
from perdure.codec import ValueType, merged_arguments
from perdure.engine.ports import AnnouncedWorkflow, ForkRequest
from perdure.errors import BadOption
from perdure.ids import checked_id
from perdure.stores.records import RunRow


def fork_request(
    workflow: str,
    at: object,
    id: str | None,
    input: Mapping[str, object] | None,
    results: Mapping[str, object] | None,
    reason: str | None,
) -> ForkRequest:
    """What a caller gave for a fork of a run of this workflow; BadOption."""
    if isinstance(at, bool) or not isinstance(at, int | str) or at == "":
        raise BadOption(f"at is {at!r}; give the number of the last event to keep, or the place to go on before")
    known = workflows.get(workflow)
    types: Mapping[str, ValueType] = {} if known is None else known.signature.parameters
    return ForkRequest(
        at,
        None if id is None else checked_id("workflow id", id),
        {
            name: _written(f"the argument {name!r}", value, types.get(name))
            for name, value in _named("input", input or {}).items()
        },
        {place: _result(place, value) for place, value in _named("results", results or {}).items()},
        checked_reason(reason),
    )


def merged_input(row: RunRow, given: Mapping[str, msgspec.Raw], announced: AnnouncedWorkflow | None) -> str:
    """The arguments of a run with those that are given in place of its own, checked by code or else as announced."""
    known = workflows.get(row.workflow)
    if known is None and announced is not None:
        return announced.merged(row.input, given)
    return merged_arguments(row.workflow, None if known is None else known.signature, row.input, given)


def _named(what: str, given: object) -> Mapping[str, object]:
    if not isinstance(given, Mapping) or not all(isinstance(name, str) for name in given):
        raise BadOption(f"{what} is {given!r}; give a dict with a value for each name")
    return given


def _result(place: str, value: object) -> msgspec.Raw:
    data = _written(f"the result of {place!r}", value)
    check_result(place, data)
    return data


def _written(what: str, value: object, kind: ValueType | None = None) -> msgspec.Raw:
    data, _ = (kind or own_type(value)).record(value, what)
    return msgspec.Raw(data)
