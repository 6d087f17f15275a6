"""Workflows that workers have announced: what others need to know to start them without their code."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import msgspec

from perdure.codec.schemas import misfit
from perdure.errors import BadArguments


class AnnouncedParameter(msgspec.Struct, frozen=True, omit_defaults=True):
    """A parameter: the JSON schema of what is written, if that is known, and its default as JSON, if it has one."""

    name: str
    schema: dict[str, Any] | None = None
    default: str | None = None
    # `args` and `kwargs` take any number.
    takes: str | None = None


class AnnouncedChannel(msgspec.Struct, frozen=True, omit_defaults=True):
    """A signal, a deferred or a request beside the code of a workflow, and the JSON schema of what it takes."""

    kind: str
    name: str
    schema: dict[str, Any] | None = None


class AnnouncedWorkflow(msgspec.Struct, frozen=True, omit_defaults=True):
    """A workflow, as a worker tells of it."""

    name: str
    parameters: tuple[AnnouncedParameter, ...] = ()
    about: str = ""
    channels: tuple[AnnouncedChannel, ...] = ()

    def check(self, named: Mapping[str, msgspec.Raw]) -> None:
        """BadArguments for arguments that do not fit, as far as that was announced."""
        parameters = {each.name: each for each in self.parameters}
        if unknown := [name for name in named if name not in parameters]:
            raise BadArguments(self.name, f"no parameter {unknown[0]!r}; it takes {', '.join(parameters) or 'none'}")
        for each in self.parameters:
            if each.name not in named:
                if each.default is None and each.takes is None:
                    raise BadArguments(self.name, f"{each.name!r} is missing")
            elif each.schema is not None:
                trouble = misfit(msgspec.json.decode(named[each.name]), each.schema)
                if trouble is not None:
                    raise BadArguments(self.name, f"{each.name!r}: {trouble}")

    def merged(self, had: str, given: Mapping[str, msgspec.Raw]) -> str:
        """Recorded arguments with others in the place of those of the same name; BadArguments."""
        named = {**msgspec.json.decode(had, type=dict[str, msgspec.Raw]), **given}
        self.check(named)
        return msgspec.json.encode(named).decode()


class Announcements(Protocol):
    """The workflows that a worker of a namespace ever had."""

    async def announce(self, namespace: str, workflows: Sequence[AnnouncedWorkflow]) -> None:
        """Let others know of these; nothing is written of those that are known as they are."""

    async def get(self, namespace: str, name: str) -> AnnouncedWorkflow | None:
        """The workflow of this name, as it was announced last."""

    async def names(self, namespace: str) -> tuple[str, ...]:
        """All that were announced."""
