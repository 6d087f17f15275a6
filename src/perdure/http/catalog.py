"""The catalog: which workflows are known here, and whether arguments fit them.

In:   the functions of this process; what workers have announced.
Out:  arguments as they go to disk, and the defaults they are compared with; UnknownWorkflow, BadArguments.
"""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from perdure.authoring.workflow import Workflow
from perdure.clock import Clock
from perdure.codec import merged_arguments
from perdure.codec.schemas import misfit
from perdure.engine.ports import AnnouncedWorkflow, Announcements
from perdure.errors import BadArguments, UnknownWorkflow
from perdure.http.values import checked_value
from perdure.stores.records import RunRow

# So long it is believed what was announced, and of so many workflows.
KNOWN_MS = 5000
MOST_KNOWN = 1000


class Arguments(msgspec.Struct, frozen=True):
    """Arguments as they go to disk; restored ones for a worker of the same process."""

    input: str
    defaults: Mapping[str, bytes | msgspec.Raw] = {}
    restored: tuple[tuple[Any, ...], dict[str, Any]] | None = None


class Catalog:
    """The workflows of this process, those that are registered later as well; and those that workers announced."""

    def __init__(
        self,
        get: Callable[[str], Workflow[..., Any] | None],
        names: Callable[[], tuple[str, ...]],
        announcements: Announcements,
        clock: Clock,
    ) -> None:
        self._get = get
        self._names = names
        self._announcements = announcements
        self._clock = clock
        # By namespace and name what was announced, and until when that is believed.
        self._known: dict[tuple[str, str], tuple[int, AnnouncedWorkflow]] = {}

    async def arguments(self, namespace: str, workflow: str, given: msgspec.Raw) -> Arguments:
        """The arguments of a start, by name or in order, checked as far as the workflow is known."""
        found = self._get(workflow)
        if found is not None:
            data, args, kwargs = found.signature.from_json(bytes(given) or b"{}")
            return Arguments(data.decode(), found.signature.defaults, (args, kwargs))
        announced = await self._announced(namespace, workflow)
        defaults = {
            each.name: msgspec.Raw(each.default.encode()) for each in announced.parameters if each.default is not None
        }
        return Arguments(checked_input(announced, given), defaults)

    async def signal_misfit(self, namespace: str, workflow: str, name: str, payload: object) -> str | None:
        """Why a signal beside the code of a workflow cannot have this payload, as far as that was announced."""
        try:
            channels = (await self._announced(namespace, workflow)).channels
        except UnknownWorkflow:
            return None
        schemas = [each.schema for each in channels if (each.kind, each.name) == ("signal", name)]
        return misfit(payload, schemas[0]) if schemas and schemas[0] is not None else None

    async def _announced(self, namespace: str, workflow: str) -> AnnouncedWorkflow:
        now = self._clock.monotonic()
        until, known = self._known.get((namespace, workflow), (-1, None))
        if known is None or now >= until:
            known = await self._announcements.get(namespace, workflow)
            if known is None:
                there = {*self._names(), *await self._announcements.names(namespace)}
                raise UnknownWorkflow(workflow, tuple(sorted(there)), UnknownWorkflow.ON_SERVER)
            if len(self._known) >= MOST_KNOWN:
                self._known.clear()
            self._known[namespace, workflow] = (now + KNOWN_MS, known)
        return known

    def merged(self, row: RunRow, given: Mapping[str, msgspec.Raw], announced: AnnouncedWorkflow | None) -> str:
        """The arguments of a run with those that are given in place of its own; BadArguments."""
        known = self._get(row.workflow)
        if known is None and announced is not None:
            return announced.merged(row.input, given)
        return merged_arguments(row.workflow, None if known is None else known.signature, row.input, given)


def checked_input(workflow: AnnouncedWorkflow, given: msgspec.Raw) -> str:
    """Arguments by name, with the bytes of their values as they came; BadArguments as far as that was announced."""
    named = _by_name(workflow, bytes(checked_value(given, f"the arguments of {workflow.name}")))
    workflow.check(named)
    return msgspec.json.encode(named).decode()


def _by_name(workflow: AnnouncedWorkflow, data: bytes) -> dict[str, msgspec.Raw]:
    """Arguments that were given by name, or in the order of the parameters."""
    try:
        if data.lstrip()[:1] != b"[":
            return {} if data == b"null" else msgspec.json.decode(data, type=dict[str, msgspec.Raw])
        items = msgspec.json.decode(data, type=list[msgspec.Raw])
    except msgspec.ValidationError:
        trouble = "give the arguments as a JSON object by name or an array in order"
        raise BadArguments(workflow.name, trouble) from None
    names = [each.name for each in workflow.parameters if each.takes is None]
    if len(items) > len(names):
        raise BadArguments(workflow.name, f"{len(items)} given; it takes {', '.join(names) or 'none'}")
    return dict(zip(names, items, strict=False))
