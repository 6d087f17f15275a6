"""The catalog: which workflows are known here, and whether arguments fit them.

In:   the functions of this process; what workers have announced.
Out:  arguments as they go to disk, and the defaults they are compared with; UnknownWorkflow, BadArguments.
"""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from perdure.authoring.workflow import Workflow
from perdure.codec import merged_arguments
from perdure.errors import UnknownWorkflow
from perdure.stores.records import RunRow


class Arguments(msgspec.Struct, frozen=True):
    """Arguments as they go to disk; restored ones for a worker of the same process."""

    input: str
    defaults: Mapping[str, bytes | msgspec.Raw] = {}
    restored: tuple[tuple[Any, ...], dict[str, Any]] | None = None


class Catalog:
    """The workflows of this process, those that are registered later as well."""

    def __init__(self, get: Callable[[str], Workflow[..., Any] | None], names: Callable[[], tuple[str, ...]]) -> None:
        self._get = get
        self._names = names

    async def arguments(self, namespace: str, workflow: str, given: msgspec.Raw) -> Arguments:
        """The arguments of a start, by name or in order, checked as far as the workflow is known."""
        found = self._get(workflow)
        if found is None:
            raise UnknownWorkflow(workflow, self._names())
        data, args, kwargs = found.signature.from_json(bytes(given) or b"{}")
        return Arguments(data.decode(), found.signature.defaults, (args, kwargs))

    def merged(self, row: RunRow, given: Mapping[str, msgspec.Raw]) -> str:
        """The arguments of a run with those that are given in place of its own; BadArguments."""
        known = self._get(row.workflow)
        return merged_arguments(row.workflow, None if known is None else known.signature, row.input, given)
