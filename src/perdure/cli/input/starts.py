"""Starting runs: what `perdure run` and `perdure start` have in common.

In:   MODULE:WORKFLOW, JSON arguments, and the options of a start as they were typed.
Out:  a call that is known to be right, before any database is opened.
"""

from typing import Any, NamedTuple

import perdure
from perdure.cli.input.modules import workflow_named
from perdure.cli.input.options import DEFAULT_QUEUE
from perdure.cli.input.values import attributes, json_given
from perdure.kernel.conflict import OnConflict

EXAMPLE = """'{"order": "o-17"}' by name, or '["o-17"]' in order"""


class StartOptions(NamedTuple):
    """The options of a start, as they were typed."""

    id: str | None
    queue: str | None
    timeout: float | None
    delay: float | None
    priority: int | None
    entity: str | None
    correlation: str | None
    attributes: list[str] | None
    on_conflict: OnConflict | None

    def given(self) -> dict[str, Any]:
        """The options as the engine takes them."""
        return {
            "id": self.id,
            "queue": self.queue,
            "timeout": self.timeout,
            "delay": self.delay,
            "priority": self.priority,
            "entity_id": self.entity,
            "correlation_id": self.correlation,
            "attributes": attributes(self.attributes) if self.attributes else None,
            "on_conflict": self.on_conflict,
        }


class NamedCall:
    """A workflow that a server knows by its name, with arguments that are checked there."""

    def __init__(self, name: str, arguments: str, options: StartOptions) -> None:
        self.name = name
        self._data = json_given(arguments, "ARGUMENTS", EXAMPLE)
        self._options = options.given()

    async def start(self, app: "perdure.Perdure") -> "perdure.Run[Any]":
        """Start the run; or what the options say when its id is taken."""
        return await app.start_json(self.name, self._data, **self._options)


class StartCall(NamedCall):
    """A workflow of a module, with arguments and options that fit it."""

    def __init__(self, target: str, arguments: str, options: StartOptions) -> None:
        self._workflow = workflow_named(target).options(**options.given())
        super().__init__(self._workflow.name, arguments, options)
        self.target = target
        # Opening the database creates it; what could not be started there must not.
        self._workflow.signature.from_json(self._data)

    @property
    def module(self) -> str:
        return self.target.rpartition(":")[0]

    @property
    def queues(self) -> frozenset[str]:
        """What has to be worked so that the run begins, and its activities without a queue of their own."""
        return frozenset({DEFAULT_QUEUE, self._workflow.settings.queue or DEFAULT_QUEUE})

    @property
    def arguments(self) -> str:
        """The arguments as they are typed literally."""
        return self._data.decode().strip()
