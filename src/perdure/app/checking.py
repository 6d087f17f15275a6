"""Checks and traces of runs against the code of this process; the worker's code is loaded when one is asked for.

In:   an engine, workflows or their names, a filter.
Out:  what fits and what does not; nothing is written, claimed or run.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from perdure.app import options
from perdure.app.run import Run
from perdure.authoring.workflow import Workflow, workflows
from perdure.engine.ports import Engine
from perdure.errors import BadOption, UnknownWorkflow
from perdure.views.check import Check, Trace


async def check(
    engine: Engine,
    namespace: str,
    wanted: Sequence[object],
    known: Mapping[str, Workflow[..., Any] | None],
    where: str | None,
    params: Mapping[str, object] | None,
    limit: int | None,
) -> Check:
    """Whether open runs fit: of the wanted workflows, or of all; `known` are those of this process."""
    from perdure.worker.check.check import check_runs  # noqa: PLC0415 - only who checks needs the worker's code

    if where is None and params is not None:
        raise BadOption("params are the values in a filter; give where=, too")
    if limit is not None:
        options.count("limit", limit, 1)
    chosen = dict(_chosen(each, known) for each in wanted) if wanted else known
    return await check_runs(engine, namespace, chosen, where, params, limit, is_all=not wanted)


def _chosen(each: object, known: Mapping[str, Workflow[..., Any] | None]) -> tuple[str, Workflow[..., Any] | None]:
    if isinstance(each, Workflow):
        return each.name, each
    if isinstance(each, str):
        return each, known.get(each)
    raise BadOption(f"{each!r} is no workflow; give one that is decorated with @workflow, or its name")


async def trace_of(run: Run[Any]) -> Trace:
    """A run replayed with the code of this process, line by line; UnknownWorkflow."""
    from perdure.worker.check.trace import trace  # noqa: PLC0415 - as above

    workflow = workflows.get(run.workflow)
    if workflow is None:
        raise UnknownWorkflow(run.workflow, workflows.names())
    return await trace(run._engine, run._home.namespace, run.run_id, workflow)
